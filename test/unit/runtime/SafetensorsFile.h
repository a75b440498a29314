// Writes checkpoints, valid and broken ones, into directories that vanish with
// the test.
#ifndef PREFILL_TEST_UNIT_RUNTIME_SAFETENSORSFILE_H
#define PREFILL_TEST_UNIT_RUNTIME_SAFETENSORSFILE_H

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace prefill::test {

class TemporaryDirectory {
public:
  TemporaryDirectory() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "prefill-test-XXXXXX")
            .string();
    name = mkdtemp(pattern.data());
  }
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(name); }

  const std::string &path() const { return name; }
  std::string write(const std::string &file, const std::string &content) const {
    // Truncating an existing file makes ext4 flush it: a fresh one is written a
    // thousand times faster.
    std::filesystem::remove(name + "/" + file);
    std::ofstream(name + "/" + file, std::ios::binary) << content;
    return name + "/" + file;
  }

private:
  std::string name;
};

inline std::string littleEndian(uint64_t value) {
  std::string bytes(8, '\0');
  for (char &byte : bytes) {
    byte = static_cast<char>(value & 0xff);
    value >>= 8;
  }
  return bytes;
}

inline std::string safetensorsFile(const std::string &header,
                                   const std::string &data) {
  return littleEndian(header.size()) + header + data;
}

/// A header with one tensor.
inline std::string tensorHeader(const std::string &name,
                                const std::string &dtype,
                                const std::string &shape, uint64_t begin,
                                uint64_t end) {
  return "{\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," +
         std::to_string(end) + "]}}";
}

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_RUNTIME_SAFETENSORSFILE_H
