#include "NpyFile.h"

#include <string>

using namespace prefill::run;
using prefill::rt::Result;

Result<void> prefill::run::writeNpy(OutputFile &file,
                                    const std::vector<int64_t> &shape,
                                    const std::vector<float> &data) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (int64_t extent : shape)
    header += std::to_string(extent) + ",";
  header += "), }";
  // Magic, version, u16 length: 10 bytes. The data start at a multiple of 64.
  constexpr size_t preambleBytes = 10;
  while ((preambleBytes + header.size() + 1) % 64 != 0)
    header += ' ';
  header += '\n';
  std::string preamble("\x93NUMPY\x01\x00", 8);
  preamble += static_cast<char>(header.size() & 0xff);
  preamble += static_cast<char>(header.size() >> 8);
  if (Result<void> ok = file.write(preamble + header); !ok)
    return ok;
  if (Result<void> ok = file.write(data.data(), data.size() * sizeof(float));
      !ok)
    return ok;
  return file.commit();
}
