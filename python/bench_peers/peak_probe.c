// What the multiply units can do: independent multiply-accumulates on registers
// alone, on every thread at once.
//
// usage: peak_probe THREADS [int8]      prints "ISA GFLOP/s": the fastest of
// five repetitions of about 15 ms, all threads added; int8: of vpdpbusd
#include <cpuid.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REPETITIONS = 5, MAX_THREADS = 256 };

// 24 accumulators hide the latency of two units; the operands stay the same, no
// value is ever loaded.
// clang-format off: it writes this macro differently each time
#define TIMES24(X)                                                             \
  X(0)                                                                         \
  X(1)                                                                         \
  X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)  \
      X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
// clang-format on
#define TIMES12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define DPBF16(N) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #N "\n"
#define FMA512(N) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" #N "\n"
#define FMA256(N) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #N "\n"
#define DPBUSD512(N) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #N "\n"
// Without {vex} an assembler takes the encoding of AVX-512.
#define DPBUSD256(N) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #N "\n"
#define LOOP(INSTRUCTIONS, FIRST)                                              \
  __asm__ volatile(FIRST "1:\n" INSTRUCTIONS "dec %0\njnz 1b\nvzeroupper\n"    \
                   : "+r"(iterations)                                          \
                   :                                                           \
                   : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",   \
                     "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
                     "xmm12", "xmm13", "xmm14", "xmm15")

// The registers above 15 are not in the list: this file is compiled without
// AVX-512, so the compiler does not use them.
static void bf16(long iterations) {
  LOOP(TIMES24(DPBF16),
       "vpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31\n");
}
static void f32_512(long iterations) {
  LOOP(TIMES24(FMA512),
       "vpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31\n");
}
static void f32_256(long iterations) {
  LOOP(TIMES12(FMA256),
       "vpxor %%ymm14, %%ymm14, %%ymm14\nvpxor %%ymm15, %%ymm15, %%ymm15\n");
}
static void int8_512(long iterations) {
  LOOP(TIMES24(DPBUSD512),
       "vpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31\n");
}
static void int8_256(long iterations) {
  LOOP(TIMES12(DPBUSD256),
       "vpxor %%ymm14, %%ymm14, %%ymm14\nvpxor %%ymm15, %%ymm15, %%ymm15\n");
}

// What ldtilecfg reads: every tile of 16 rows x 64 bytes.
static const struct __attribute__((aligned(64))) {
  unsigned char palette, start_row, reserved[14];
  unsigned short column_bytes[16];
  unsigned char rows[16];
} tiles = {1,
           0,
           {0},
           {64, 64, 64, 64, 64, 64, 64, 64},
           {16, 16, 16, 16, 16, 16, 16, 16}};

// Four accumulators hide the latency of the one unit.
static void amx(long iterations) {
  __asm__ volatile("ldtilecfg %0\ntilezero %%tmm0\ntilezero %%tmm1\n"
                   "tilezero %%tmm2\ntilezero %%tmm3\ntilezero %%tmm4\n"
                   "tilezero %%tmm5\ntilezero %%tmm6\ntilezero %%tmm7\n"
                   :
                   : "m"(tiles));
  __asm__ volatile("1:\ntdpbf16ps %%tmm6, %%tmm4, %%tmm0\n"
                   "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
                   "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n"
                   "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
                   "dec %0\njnz 1b\ntilerelease\n"
                   : "+r"(iterations)
                   :
                   : "cc");
}

// Tiles are there when CPUID has them and Linux lets this process use them
// (ARCH_REQ_XCOMP_PERM of XTILEDATA): without that they are illegal
// instructions. Older compilers' __builtin_cpu_supports does not find them.
static int has_amx_bf16(void) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && edx >> 22 & 1 &&
         edx >> 24 & 1 && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

static int has_avx_vnni(void) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx2") &&
         __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && eax >> 4 & 1;
}

static void (*kernel)(long);
static long iterationsEach;
static pthread_barrier_t barrier;
static struct {
  double start[REPETITIONS], end[REPETITIONS];
} times[MAX_THREADS];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Each thread takes its own times: where there are fewer cores than threads,
// nobody else is on time to do it.
static void *run(void *index) {
  long self = (long)index;
  for (int repetition = 0; repetition < REPETITIONS; ++repetition) {
    pthread_barrier_wait(&barrier);
    times[self].start[repetition] = now();
    kernel(iterationsEach);
    times[self].end[repetition] = now();
  }
  return NULL;
}

// GFLOP/s of `threads` threads that all run `loop`, `flops` an iteration.
static double measure(void (*loop)(long), long iterations, double flops,
                      int threads) {
  kernel = loop, iterationsEach = iterations;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  pthread_t ids[MAX_THREADS];
  for (int i = 0; i < threads; ++i)
    if (pthread_create(&ids[i], NULL, run, (void *)(long)i)) {
      fprintf(stderr, "error: cannot start thread %d\n", i);
      exit(1);
    }
  for (int i = 0; i < threads; ++i)
    pthread_join(ids[i], NULL);
  pthread_barrier_destroy(&barrier);
  double best = 1e30;
  for (int repetition = 0; repetition < REPETITIONS; ++repetition) {
    double start = times[0].start[repetition], end = times[0].end[repetition];
    for (int i = 1; i < threads; ++i) {
      start = times[i].start[repetition] < start ? times[i].start[repetition]
                                                 : start;
      end = times[i].end[repetition] > end ? times[i].end[repetition] : end;
    }
    best = end - start < best ? end - start : best;
  }
  return flops * (double)iterations * threads / best / 1e9;
}

int main(int argc, char **argv) {
  int threads = argc == 2 || argc == 3 ? atoi(argv[1]) : 0;
  int int8 = argc == 3 && strcmp(argv[2], "int8") == 0;
  if (threads < 1 || threads > MAX_THREADS || (argc == 3 && !int8)) {
    fprintf(stderr,
            "error: usage: peak_probe THREADS [int8] (expected 1 to 256)\n");
    return 1;
  }
  const char *isa;
  double rate;
  if (int8 && __builtin_cpu_supports("avx512vnni")) {
    isa = "avx512_vnni int8",
    rate = measure(int8_512, 2000000, 24 * 128, threads);
  } else if (int8 && has_avx_vnni()) {
    isa = "avx_vnni int8", rate = measure(int8_256, 2000000, 12 * 64, threads);
  } else if (!int8 && has_amx_bf16()) { // 64 cycles an iteration
    isa = "amx_bf16", rate = measure(amx, 500000, 4 * 16384, threads);
  } else if (__builtin_cpu_supports("avx512f")) {
    isa = "avx512 f32", rate = measure(f32_512, 2000000, 24 * 32, threads);
    // Not on every CPU the faster way to multiply bf16.
    double dot = !int8 && __builtin_cpu_supports("avx512bf16")
                     ? measure(bf16, 2000000, 24 * 64, threads)
                     : 0;
    if (dot > rate)
      isa = "avx512_bf16", rate = dot;
  } else if (__builtin_cpu_supports("fma")) {
    isa = "avx2 f32", rate = measure(f32_256, 2000000, 12 * 16, threads);
  } else {
    fprintf(stderr, "error: this CPU has neither AVX-512 nor FMA\n");
    return 1;
  }
  printf("%s %.2f\n", isa, rate);
  return 0;
}
