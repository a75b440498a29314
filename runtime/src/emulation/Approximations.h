// The device's approximate functions with .ftz: here rounded to nearest, with
// subnormal arguments and results flushed to zero. (The device is allowed an
// error of 2 ulp in ex2, 1 ulp in rcp, 2^-22.9 in rsqrt and 2^-22 in lg2.)
#ifndef PREFILL_RUNTIME_EMULATION_APPROXIMATIONS_H
#define PREFILL_RUNTIME_EMULATION_APPROXIMATIONS_H

#include <cfloat>
#include <cmath>

namespace prefill::rt::emulation {

inline float flushSubnormal(float value) {
  return std::fabs(value) < FLT_MIN ? std::copysign(0.0f, value) : value;
}
inline float exp2Approx(float value) {
  return flushSubnormal(std::exp2(flushSubnormal(value)));
}
inline float reciprocalApprox(float value) {
  return flushSubnormal(1.0f / flushSubnormal(value));
}
inline float reciprocalSqrtApprox(float value) {
  return static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(flushSubnormal(value))));
}

inline float log2Approx(float value) {
  return flushSubnormal(std::log2(flushSubnormal(value)));
}

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_APPROXIMATIONS_H
