"""The measured model's shape, its FLOPs, its prompt: what every engine and the harness must agree on."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """A Llama decoder with tied embeddings. Sizes in elements; `layers` may be cut, all layers being alike."""

    layers: int
    hidden: int = 2048
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 64
    intermediate: int = 8192
    vocab: int = 128256
    rope_theta: float = 500000.0
    rms_eps: float = 1e-5
    max_positions: int = 131072

    @property
    def name(self):
        return "llama-3.2-1b" + ("" if self.layers == 16 else f", {self.layers} of 16 layers")

    def flops(self, length):
        """FLOPs that the prefill of `length` tokens needs, 2 per multiply-accumulate: every projection for every
        token, the causal half of attention (diagonal included), logits of the last token only. Of the last layer
        the other tokens need keys and values alone (and their queries, which come from the same product)."""
        qkv = self.hidden * (self.q_heads + 2 * self.kv_heads) * self.head_dim
        out = self.q_heads * self.head_dim * self.hidden
        mlp = 3 * self.hidden * self.intermediate
        pair = 2 * self.q_heads * self.head_dim
        whole = length * (out + mlp) + pair * length * (length + 1) // 2
        last = out + mlp + pair * length
        return 2 * (self.layers * length * qkv + (self.layers - 1) * whole + last + self.hidden * self.vocab)

    def weight_bytes(self):
        """Bytes of the weights in bf16."""
        layer = (self.hidden * (2 * self.q_heads + 2 * self.kv_heads) * self.head_dim
                 + 3 * self.hidden * self.intermediate + 2 * self.hidden)
        return 2 * (self.layers * layer + self.vocab * self.hidden + self.hidden)

    def hf_config(self):
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
            "hidden_act": "silu", "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.q_heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "vocab_size": self.vocab,
            "max_position_embeddings": self.max_positions, "rms_norm_eps": self.rms_eps,
            "rope_theta": self.rope_theta, "rope_scaling": None, "tie_word_embeddings": True,
            "torch_dtype": "bfloat16", "use_cache": True, "bos_token_id": None, "eos_token_id": None,
        }


def prompt(length, vocab):
    """Token ids of the prompt, the same for every engine; a shorter prompt is a prefix of a longer one."""
    return [(index * 7919 + 13 * (index // 7) + 11) % vocab for index in range(length)]
