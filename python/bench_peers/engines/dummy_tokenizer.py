"""A checkpoint directory with a tokenizer, for converters that insist on one: word i is token i."""
import json
import pathlib

from tokenizers import Tokenizer, models


def with_tokenizer(hf_directory, vocab):
    """The path of a directory that links to the checkpoint's files and has a tokenizer beside them."""
    source = pathlib.Path(hf_directory)
    directory = source.with_name(source.name + "-with-tokenizer")
    directory.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        if not (directory / name).exists():
            (directory / name).symlink_to(source / name)
    Tokenizer(models.WordLevel({str(i): i for i in range(vocab)}, unk_token="0")).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "0", "bos_token": "0", "eos_token": "1"}))
    return directory
