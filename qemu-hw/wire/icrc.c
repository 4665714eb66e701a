/*
 * qrnic wire: CRC-32 and the invariant CRC
 *
 * There are four implementations of the CRC-32 with equal results. One works
 * byte by byte (the definition), and another uses tables for 16 bytes per step.
 * Two use carry-less multiplication, of one or of four 128-bit chunks per
 * instruction. The first call of qrnic_crc32() chooses one of them for the life
 * of the process.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#ifdef HAVE_CLMUL
#include <immintrin.h>
#endif

#define CRC32_POLY      0xedb88320u

/* table[n][b] is the CRC of byte b followed by n zero bytes. */
static uint32_t table[16][256];

static QrnicCrc32 crc32_first;

/* Fastest implementation on this processor, after the first call */
static QrnicCrc32 *crc32_chosen = crc32_first;

static void crc32_init_tables(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? CRC32_POLY : 0);
        }
        table[0][b] = crc;
    }
    for (unsigned n = 1; n < 16; n++) {
        for (unsigned b = 0; b < 256; b++) {
            uint32_t before = table[n - 1][b];

            table[n][b] = before >> 8 ^ table[0][before & 0xff];
        }
    }
}

uint32_t qrnic_crc32_bytewise(uint32_t crc, const uint8_t *data, size_t len)
{
    while (len--) {
        crc = crc >> 8 ^ table[0][(crc ^ *data++) & 0xff];
    }
    return crc;
}

/* Returns the CRC of four bytes, followed by "last" zero bytes. */
static inline uint32_t crc32_word(uint32_t word, unsigned last)
{
    return table[last + 3][word & 0xff] ^
           table[last + 2][word >> 8 & 0xff] ^
           table[last + 1][word >> 16 & 0xff] ^
           table[last][word >> 24];
}

uint32_t qrnic_crc32_slicing(uint32_t crc, const uint8_t *data, size_t len)
{
    for (; len >= 16; data += 16, len -= 16) {
        crc = crc32_word(crc ^ (uint32_t)ldl_le_p(data), 12) ^
              crc32_word(ldl_le_p(data + 4), 8) ^
              crc32_word(ldl_le_p(data + 8), 4) ^
              crc32_word(ldl_le_p(data + 12), 0);
    }
    for (; len >= 4; data += 4, len -= 4) {
        crc = crc32_word(crc ^ (uint32_t)ldl_le_p(data), 0);
    }
    return qrnic_crc32_bytewise(crc, data, len);
}

#ifdef HAVE_CLMUL

bool qrnic_crc32_have_clmul(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("sse4.1");
}

#define CLMUL __attribute__((target("pclmul,sse4.1")))

/*
 * Constants for folding. A 128-bit chunk moved forward by n bits equals low
 * half * x^(n+32) + high half * x^(n-32), modulo the polynomial. In the
 * reflected domain each constant is the reflected remainder shifted left by
 * one. LOW is the constant for the low half of the register.
 */
#define FOLD_512_LOW    0x0154442bd4ull         /* x^(512+32) */
#define FOLD_512_HIGH   0x01c6e41596ull         /* x^(512-32) */
#define FOLD_128_LOW    0x01751997d0ull         /* x^(128+32) */
#define FOLD_128_HIGH   0x00ccaa009eull         /* x^(128-32) */
#define FOLD_64         0x0163cd6124ull         /* x^64 */
/* Shorter data uses the tables, which are as fast. */
#define CLMUL_MIN       48

/* Constants of Barrett's reduction: floor(x^64 / P) and P, both reflected */
#define QUOTIENT        0x01f7011641ull
#define POLYNOMIAL      0x01db710641ull

static inline CLMUL __m128i fold(__m128i chunk, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(chunk, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(chunk, by, 0x11);

    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static inline CLMUL __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/*
 * Returns the CRC of 16 bytes: reduces 128 bits to 96, to 64, and to the
 * remainder.
 */
static inline CLMUL uint32_t reduce(__m128i x)
{
    const __m128i by_128 = _mm_set_epi64x(FOLD_128_HIGH, FOLD_128_LOW);
    const __m128i by_64 = _mm_set_epi64x(0, FOLD_64);
    const __m128i barrett = _mm_set_epi64x(POLYNOMIAL, QUOTIENT);
    const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
    __m128i q;

    x = _mm_xor_si128(_mm_clmulepi64_si128(x, by_128, 0x10),
                      _mm_srli_si128(x, 8));
    x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low_32), by_64, 0),
                      _mm_srli_si128(x, 4));
    q = _mm_clmulepi64_si128(_mm_and_si128(x, low_32), barrett, 0x00);
    q = _mm_clmulepi64_si128(_mm_and_si128(q, low_32), barrett, 0x10);
    return _mm_extract_epi32(_mm_xor_si128(x, q), 1);
}

/*
 * Folds the rest of the data; x0 is the chunk that stands for all data before.
 */
static inline CLMUL uint32_t fold_rest(__m128i x0, const uint8_t *data,
                                       size_t len)
{
    const __m128i by_128 = _mm_set_epi64x(FOLD_128_HIGH, FOLD_128_LOW);

    for (; len >= 16; data += 16, len -= 16) {
        x0 = fold(x0, by_128, load(data));
    }
    return qrnic_crc32_slicing(reduce(x0), data, len);
}

CLMUL uint32_t qrnic_crc32_clmul(uint32_t crc, const uint8_t *data, size_t len)
{
    const __m128i by_512 = _mm_set_epi64x(FOLD_512_HIGH, FOLD_512_LOW);
    const __m128i by_128 = _mm_set_epi64x(FOLD_128_HIGH, FOLD_128_LOW);
    __m128i x0, x1, x2, x3;

    if (len < CLMUL_MIN) {
        return qrnic_crc32_slicing(crc, data, len);
    }
    x0 = _mm_xor_si128(load(data), _mm_cvtsi32_si128(crc));
    if (len < 64) {
        return fold_rest(x0, data + 16, len - 16);
    }
    x1 = load(data + 16);
    x2 = load(data + 32);
    x3 = load(data + 48);
    for (data += 64, len -= 64; len >= 64; data += 64, len -= 64) {
        x0 = fold(x0, by_512, load(data));
        x1 = fold(x1, by_512, load(data + 16));
        x2 = fold(x2, by_512, load(data + 32));
        x3 = fold(x3, by_512, load(data + 48));
    }
    x0 = fold(x0, by_128, x1);
    x0 = fold(x0, by_128, x2);
    x0 = fold(x0, by_128, x3);
    return fold_rest(x0, data, len);
}

#else

bool qrnic_crc32_have_clmul(void)
{
    return false;
}

uint32_t qrnic_crc32_clmul(uint32_t crc, const uint8_t *data, size_t len)
{
    return qrnic_crc32_slicing(crc, data, len);
}

#endif

#ifdef HAVE_VPCLMUL

bool qrnic_crc32_have_vpclmul(void)
{
    return qrnic_crc32_have_clmul() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("vpclmulqdq");
}

#define VPCLMUL __attribute__((target("vpclmulqdq,avx512f,pclmul,sse4.1")))

#define FOLD_2048_LOW   0x011542778aull         /* x^(2048+32) */
#define FOLD_2048_HIGH  0x01322d1430ull         /* x^(2048-32) */

/* Folds four consecutive chunks of 128 bits. */
static inline VPCLMUL __m512i fold_four(__m512i chunks, __m512i by,
                                        __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(chunks, by, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(chunks, by, 0x11);

    return _mm512_xor_si512(_mm512_xor_si512(low, high), next);
}

static inline VPCLMUL __m512i load_four(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

static inline VPCLMUL __m512i four_times(uint64_t high, uint64_t low)
{
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

VPCLMUL uint32_t qrnic_crc32_vpclmul(uint32_t crc, const uint8_t *data,
                                     size_t len)
{
    const __m512i by_2048 = four_times(FOLD_2048_HIGH, FOLD_2048_LOW);
    const __m512i by_512 = four_times(FOLD_512_HIGH, FOLD_512_LOW);
    const __m128i by_128 = _mm_set_epi64x(FOLD_128_HIGH, FOLD_128_LOW);
    __m512i y0, y1, y2, y3;
    uint8_t four[64];
    __m128i x0;

    if (len < 256) {
        return qrnic_crc32_clmul(crc, data, len);
    }
    y0 = _mm512_xor_si512(load_four(data), _mm512_zextsi128_si512(
                                               _mm_cvtsi32_si128(crc)));
    y1 = load_four(data + 64);
    y2 = load_four(data + 128);
    y3 = load_four(data + 192);
    for (data += 256, len -= 256; len >= 256; data += 256, len -= 256) {
        y0 = fold_four(y0, by_2048, load_four(data));
        y1 = fold_four(y1, by_2048, load_four(data + 64));
        y2 = fold_four(y2, by_2048, load_four(data + 128));
        y3 = fold_four(y3, by_2048, load_four(data + 192));
    }
    y0 = fold_four(y0, by_512, y1);
    y0 = fold_four(y0, by_512, y2);
    y0 = fold_four(y0, by_512, y3);
    for (; len >= 64; data += 64, len -= 64) {
        y0 = fold_four(y0, by_512, load_four(data));
    }
    _mm512_storeu_si512(four, y0);
    x0 = fold(load(four), by_128, load(four + 16));
    x0 = fold(x0, by_128, load(four + 32));
    x0 = fold(x0, by_128, load(four + 48));
    return fold_rest(x0, data, len);
}

#else

bool qrnic_crc32_have_vpclmul(void)
{
    return false;
}

uint32_t qrnic_crc32_vpclmul(uint32_t crc, const uint8_t *data, size_t len)
{
    return qrnic_crc32_clmul(crc, data, len);
}

#endif

/*
 * Length of the trial, so that each loop of an implementation and the rest
 * after it are executed
 */
#define TRIAL_LEN       (2 * 256 + 64 + 16 + 15)

QrnicCrc32 *qrnic_crc32_choose(QrnicCrc32 *fast)
{
    uint8_t data[16 + TRIAL_LEN];
    uint32_t next = 1;

    for (size_t i = 0; i < sizeof(data); i++) {
        next = next * 1664525 + 1013904223;
        data[i] = next >> 24;
    }
    for (size_t len = 0; len <= TRIAL_LEN; len++) {
        const uint8_t *at = data + len % 16;
        uint32_t start = QRNIC_CRC32_INIT - len;

        if (fast(start, at, len) != qrnic_crc32_bytewise(start, at, len)) {
            return qrnic_crc32_slicing;
        }
    }
    return fast;
}

static void __attribute__((constructor)) crc32_init(void)
{
    crc32_init_tables();
}

/*
 * Chooses the implementation at the first call. The trial takes half a
 * millisecond, which is avoided because most processes with this code have no
 * device.
 */
static uint32_t crc32_first(uint32_t crc, const uint8_t *data, size_t len)
{
    QrnicCrc32 *chosen = qrnic_crc32_slicing;

    if (qrnic_crc32_have_vpclmul()) {
        chosen = qrnic_crc32_choose(qrnic_crc32_vpclmul);
    }
    if (chosen == qrnic_crc32_slicing && qrnic_crc32_have_clmul()) {
        chosen = qrnic_crc32_choose(qrnic_crc32_clmul);
    }
    qatomic_set(&crc32_chosen, chosen);
    return chosen(crc, data, len);
}

uint32_t qrnic_crc32(uint32_t crc, const uint8_t *data, size_t len)
{
    return qatomic_read(&crc32_chosen)(crc, data, len);
}

bool qrnic_crc32_is_chosen(void)
{
    return qatomic_read(&crc32_chosen) != crc32_first;
}

/*
 * Payload up to this size is copied behind the masked headers, because a second
 * call of the CRC costs more.
 */
#define SHORT           64

uint32_t qrnic_icrc(QrnicIcrcCover cover, const uint8_t *ip, size_t len,
                    QrnicNetwork network)
{
    const size_t ip_len = network == QRNIC_NET_IPV4 ? QRNIC_IPV4_LEN :
                                                      QRNIC_IPV6_LEN;
    const size_t udp_len = network == QRNIC_NET_GRH ? 0 : QRNIC_UDP_LEN;
    const size_t bth_at = ip_len + udp_len;
    const size_t head = bth_at + QRNIC_BTH_LEN;
    const size_t copied = len - head <= SHORT ? len : head;
    /* RoCE has no LRH, so eight bytes of ones replace it. */
    uint8_t masked[8 + QRNIC_IPV6_LEN + QRNIC_UDP_LEN + QRNIC_BTH_LEN + SHORT];
    uint8_t *h = masked + 8;
    size_t skip = 0;
    uint32_t crc;

    memset(masked, 0xff, 8);
    memcpy(h, ip, copied);
    if (network != QRNIC_NET_IPV4) {
        h[0] |= 0x0f;           /* traffic class, flow label */
        memset(h + 1, 0xff, 3);
        h[7] = 0xff;            /* hop limit */
    } else {
        h[1] = 0xff;            /* type of service */
        h[8] = 0xff;            /* time to live */
        memset(h + 10, 0xff, 2);        /* header checksum */
    }
    if (udp_len) {
        memset(h + ip_len + 6, 0xff, 2);        /* UDP checksum */
    }
    h[bth_at + 4] = 0xff;       /* FECN, BECN, resv6 */
    if (cover == QRNIC_ICRC_TRANSPORT) {
        skip = 8 + bth_at;
    }
    crc = qrnic_crc32(QRNIC_CRC32_INIT, masked + skip, 8 + copied - skip);
    if (copied < len) {
        crc = qrnic_crc32(crc, ip + copied, len - copied);
    }
    if (cover == QRNIC_ICRC_SOFT_ROCE) {
        const uint8_t *bth = ip + bth_at;

        if (bth[0] == QRNIC_OP_RC_FLUSH) {
            crc = qrnic_crc32(crc, bth, len - (bth - ip));
        }
    }
    return ~crc;
}
