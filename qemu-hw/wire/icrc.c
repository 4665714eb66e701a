/*
 * qrnic wire: CRC-32 and the invariant CRC
 *
 * Three implementations that agree: byte by byte (the definition), sixteen
 * bytes a step by tables, and carry-less multiplication where the host has it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#ifdef HAVE_CLMUL
#include <smmintrin.h>
#include <wmmintrin.h>
#endif

#define CRC32_POLY      0xedb88320u

/* table[n][b]: the CRC of byte b followed by n zero bytes. */
static uint32_t table[16][256];

/* The fastest implementation that works here */
static QrnicCrc32 *crc32_chosen;

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

/* The four bytes of word, with last zero bytes behind its last byte. */
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
    return qrnic_crc32_bytewise(crc, data, len);
}

#ifdef HAVE_CLMUL

bool qrnic_crc32_have_clmul(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("sse4.1");
}

/*
 * Folding: a 128-bit chunk moved forward by n bits is its low half times
 * x^(n+32) plus its high half times x^(n-32), both modulo the polynomial; in
 * the reflected domain each constant is the reflected remainder shifted left
 * by one. low is for the low half of the register.
 */
#define FOLD_512_LOW    0x0154442bd4ull         /* x^(512+32) */
#define FOLD_512_HIGH   0x01c6e41596ull         /* x^(512-32) */
#define FOLD_128_LOW    0x01751997d0ull         /* x^(128+32) */
#define FOLD_128_HIGH   0x00ccaa009eull         /* x^(128-32) */

__attribute__((target("pclmul,sse4.1")))
static inline __m128i fold(__m128i chunk, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(chunk, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(chunk, by, 0x11);

    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1")))
static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

__attribute__((target("pclmul,sse4.1")))
uint32_t qrnic_crc32_clmul(uint32_t crc, const uint8_t *data, size_t len)
{
    const __m128i by_512 = _mm_set_epi64x(FOLD_512_HIGH, FOLD_512_LOW);
    const __m128i by_128 = _mm_set_epi64x(FOLD_128_HIGH, FOLD_128_LOW);
    __m128i x0, x1, x2, x3;
    uint8_t rest[16];

    if (len < 64) {
        return qrnic_crc32_slicing(crc, data, len);
    }
    x0 = _mm_xor_si128(load(data), _mm_cvtsi32_si128(crc));
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
    for (; len >= 16; data += 16, len -= 16) {
        x0 = fold(x0, by_128, load(data));
    }
    /* x0 is 16 bytes with the same remainder as everything before. */
    _mm_storeu_si128((__m128i *)rest, x0);
    crc = qrnic_crc32_slicing(0, rest, sizeof(rest));
    return qrnic_crc32_bytewise(crc, data, len);
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

/* Long enough for each loop of an implementation, and for what follows it */
#define TRIAL_LEN       (2 * 64 + 16 + 15)

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
    crc32_chosen = qrnic_crc32_have_clmul() ?
                   qrnic_crc32_choose(qrnic_crc32_clmul) : qrnic_crc32_slicing;
}

uint32_t qrnic_crc32(uint32_t crc, const uint8_t *data, size_t len)
{
    return crc32_chosen(crc, data, len);
}

uint32_t qrnic_icrc(QrnicIcrcCover cover, const uint8_t *ip, size_t len,
                    QrnicNetwork network)
{
    const size_t ip_len = network == QRNIC_NET_IPV4 ? QRNIC_IPV4_LEN :
                                                      QRNIC_IPV6_LEN;
    const size_t udp_len = network == QRNIC_NET_GRH ? 0 : QRNIC_UDP_LEN;
    const size_t bth_at = ip_len + udp_len;
    const size_t head = bth_at + QRNIC_BTH_LEN;
    /* In place of the LRH stand eight bytes of ones. */
    uint8_t masked[8 + QRNIC_IPV6_LEN + QRNIC_UDP_LEN + QRNIC_BTH_LEN];
    uint8_t *h = masked + 8;
    size_t skip = 0;
    uint32_t crc;

    memset(masked, 0xff, 8);
    memcpy(h, ip, head);
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
    crc = qrnic_crc32(QRNIC_CRC32_INIT, masked + skip, 8 + head - skip);
    crc = qrnic_crc32(crc, ip + head, len - head);
    if (cover == QRNIC_ICRC_SOFT_ROCE) {
        const uint8_t *bth = ip + bth_at;

        if (bth[0] == QRNIC_OP_RC_FLUSH) {
            crc = qrnic_crc32(crc, bth, len - (bth - ip));
        }
    }
    return ~crc;
}
