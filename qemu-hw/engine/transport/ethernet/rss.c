/*
 * qrnic engine, layer transport: receive-side scaling
 *
 * An RSS table distributes frames over raw packet queue pairs by a Toeplitz
 * hash of their headers. Commands create and destroy tables. Flow rules and the
 * receive filter name a table, and flow.c and raw_packet.c call qrnic_rss_qpn()
 * for each frame. A table keeps its queue pairs in use, and rules and filter
 * keep the table in use.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/transport.h"

#define MAX_ENTRIES (1u << QRNIC_RSS_MAX_LOG_SIZE)
#define KEY_BYTES sizeof_field(QrnicRssCtx, key)
/* Longest input: two IPv6 addresses and two ports */
#define INPUT_MAX 36

QEMU_BUILD_BUG_ON(sizeof_field(QrnicRssCtx, entries) != 4 * MAX_ENTRIES);
/*
 * The key is 4 bytes longer than the input, because the last input bit still
 * selects 32 bits of the key.
 */
QEMU_BUILD_BUG_ON(KEY_BYTES < INPUT_MAX + 4);

struct QrnicRss {
    uint32_t number;
    uint32_t users;             /* users: flow rules and the receive filter */
    uint32_t hash;              /* QRNIC_RSS_* */
    uint32_t mask;              /* number of entries - 1 */
    uint8_t key[KEY_BYTES];
    uint32_t qpn[MAX_ENTRIES];
};

static uint32_t entry_of(const QrnicRssCtx *in, unsigned i)
{
    const uint8_t *p = in->entries + 4 * i;

    return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

/*
 * Returns the Toeplitz hash: the XOR of 32 bits of the key for each set bit of
 * the input.
 */
static uint32_t toeplitz(const uint8_t *key, const uint8_t *input, size_t len)
{
    uint32_t hash = 0;
    uint32_t window = qrnic_ld_be32(key);

    for (size_t i = 0; i < len; i++) {
        for (int bit = 7; bit >= 0; bit--) {
            if (input[i] >> bit & 1) {
                hash ^= window;
            }
            window = window << 1 | (key[i + 4] >> bit & 1);
        }
    }
    return hash;
}

uint32_t qrnic_rss_qpn(QrnicEngine *e, uint32_t number, const QrnicHeaders *h,
                       QrnicRssHash *hash)
{
    const QrnicRss *rss = qrnic_table_get(&e->transport->rss, number);
    bool ipv4 = h->network == QRNIC_NET_IPV4;
    bool ipv6 = h->network == QRNIC_NET_IPV6;
    bool tcp = h->l4 && h->protocol == QRNIC_IP_PROTOCOL_TCP;
    bool udp = h->l4 && h->protocol == QRNIC_IP_PROTOCOL_UDP;
    const uint8_t *ports = h->frame + h->l4;
    /* Fields in the order in which they are hashed */
    const struct {
        bool present;
        uint32_t selected;
        const uint8_t *at;
        unsigned len;
    } part[] = {
        { ipv6, QRNIC_RSS_SRC_IPV6, h->sgid, 16 },
        { ipv4, QRNIC_RSS_SRC_IPV4, h->sgid + 12, 4 },
        { ipv6, QRNIC_RSS_DST_IPV6, h->dgid, 16 },
        { ipv4, QRNIC_RSS_DST_IPV4, h->dgid + 12, 4 },
        { tcp, QRNIC_RSS_SRC_PORT_TCP, ports, 2 },
        { udp, QRNIC_RSS_SRC_PORT_UDP, ports, 2 },
        { tcp, QRNIC_RSS_DST_PORT_TCP, ports + 2, 2 },
        { udp, QRNIC_RSS_DST_PORT_UDP, ports + 2, 2 },
    };
    uint8_t input[INPUT_MAX];
    size_t len = 0;
    uint32_t qpn;

    hash->of = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(part); i++) {
        if (part[i].present && rss->hash & part[i].selected) {
            memcpy(input + len, part[i].at, part[i].len);
            len += part[i].len;
            hash->of |= part[i].selected;
        }
    }
    hash->value = toeplitz(rss->key, input, len);
    qpn = rss->qpn[hash->value & rss->mask];
    trace_qrnic_rss_spread(e->config.name, number, hash->value,
                           hash->value & rss->mask, qpn);
    return qpn;
}

static QrnicResult create_check(QrnicEngine *e, const QrnicRssCtx *in)
{
    if (!(e->config.capabilities & QRNIC_CAP_RSS)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (in->log_size > QRNIC_RSS_MAX_LOG_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_RSS_CTX_LOG_SIZE_OFFSET);
    }
    for (unsigned i = 0; i < MAX_ENTRIES; i++) {
        uint32_t offset = QRNIC_RSS_CTX_ENTRIES_OFFSET + 4 * i;
        uint32_t qpn = entry_of(in, i);
        const QrnicQp *qp = qrnic_qp_get(e, qpn);

        if (i >> in->log_size) {
            if (qpn) {
                return qrnic_refuse(QRNIC_ST_BAD_PARAM, offset);
            }
        } else if (!qp) {
            return qrnic_refuse(QRNIC_ST_BAD_OBJECT, offset);
        } else if (!qp->ops->takes_frames) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM, offset);
        }
    }
    return qrnic_ok(0);
}

static void entries_hold(QrnicEngine *e, const QrnicRss *rss, int n)
{
    for (uint32_t i = 0; i <= rss->mask; i++) {
        qrnic_qp_get(e, rss->qpn[i])->rss_entries += n;
    }
}

QrnicResult qrnic_rss_create(QrnicEngine *e, const QrnicRssCtx *in)
{
    QrnicResult result = create_check(e, in);
    QrnicRss *rss;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    rss = g_new0(QrnicRss, 1);
    rss->hash = in->hash;
    rss->mask = (1u << in->log_size) - 1;
    memcpy(rss->key, in->key, sizeof(rss->key));
    for (uint32_t i = 0; i <= rss->mask; i++) {
        rss->qpn[i] = entry_of(in, i);
    }
    if (!qrnic_table_insert(&e->transport->rss, rss, &rss->number)) {
        g_free(rss);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    entries_hold(e, rss, 1);
    trace_qrnic_rss_create(e->config.name, rss->number, in->log_size,
                           in->hash);
    return qrnic_ok(rss->number);
}

QrnicResult qrnic_rss_destroy(QrnicEngine *e, uint32_t number)
{
    QrnicRss *rss = qrnic_table_get(&e->transport->rss, number);

    if (!rss) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (rss->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_rss_destroy(e->config.name, number);
    entries_hold(e, rss, -1);
    g_free(qrnic_table_remove(&e->transport->rss, number));
    return qrnic_ok(0);
}

bool qrnic_rss_hold(QrnicEngine *e, uint32_t number, int n)
{
    QrnicRss *rss = qrnic_table_get(&e->transport->rss, number);

    if (rss) {
        rss->users += n;
    }
    return rss;
}
