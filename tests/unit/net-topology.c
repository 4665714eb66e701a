/*
 * Topologies of a simulated network, and their routes; see net.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "net.h"

static NetDevice *device_at(Net *net, unsigned id)
{
    return &g_array_index(net->device, NetDevice, id);
}

/*
 * Searches breadth first from a node: a neighbour that is one step closer is a
 * path.
 */
static void route_to(Net *net, unsigned node, unsigned *distance,
                     unsigned *list)
{
    unsigned first = 0, len = 0;

    for (unsigned i = 0; i < net->device->len; i++) {
        distance[i] = UINT_MAX;
    }
    distance[node] = 0;
    list[len++] = node;
    while (first < len) {
        unsigned id = list[first++];
        NetDevice *d = device_at(net, id);

        for (unsigned i = 0; i < d->ports; i++) {
            unsigned other = d->port[i]->to;

            /* Nodes do not forward. */
            if (distance[other] == UINT_MAX && other >= net->sim->nodes) {
                distance[other] = distance[id] + 1;
                list[len++] = other;
            }
        }
    }
    for (unsigned id = net->sim->nodes; id < net->device->len; id++) {
        NetDevice *d = device_at(net, id);

        d->route[node] = (NetWays) { 0 };
        for (unsigned i = 0; i < d->ports; i++) {
            unsigned other = d->port[i]->to;

            if (other == node || (other >= net->sim->nodes &&
                                  distance[other] < distance[id])) {
                d->route[node].word[i / 64] |= 1ull << i % 64;
            }
        }
    }
}

void net_route(Net *net)
{
    g_autofree unsigned *distance = g_new(unsigned, net->device->len);
    g_autofree unsigned *list = g_new(unsigned, net->device->len);

    for (unsigned id = net->sim->nodes; id < net->device->len; id++) {
        device_at(net, id)->route = g_renew(NetWays,
                                            device_at(net, id)->route,
                                            net->sim->nodes);
    }
    for (unsigned node = 0; node < net->sim->nodes; node++) {
        route_to(net, node, distance, list);
    }
}

void net_pair(Net *net, const NetLink *edge)
{
    g_assert_cmpuint(net->sim->nodes, ==, 2);
    net_link(net, 0, 1, edge);
    net_route(net);
}

unsigned net_star(Net *net, const NetLink *edge)
{
    unsigned middle = net_switch_add(net);

    for (unsigned i = 0; i < net->sim->nodes; i++) {
        net_link(net, i, middle, edge);
    }
    net_route(net);
    return middle;
}

NetPort *net_dumbbell(Net *net, const NetLink *edge, const NetLink *middle)
{
    unsigned half = net->sim->nodes / 2;
    unsigned left = net_switch_add(net), right = net_switch_add(net);
    NetPort *p = net_link(net, left, right, middle);

    for (unsigned i = 0; i < net->sim->nodes; i++) {
        net_link(net, i, i < half ? left : right, edge);
    }
    net_route(net);
    return p;
}

void net_leaf_spine(Net *net, unsigned spines, const NetLink *edge,
                    const NetLink *middle)
{
    unsigned half = net->sim->nodes / 2;
    unsigned leaf[] = { net_switch_add(net), net_switch_add(net) };

    for (unsigned i = 0; i < spines; i++) {
        unsigned spine = net_switch_add(net);

        net_link(net, leaf[0], spine, middle);
        net_link(net, leaf[1], spine, middle);
    }
    for (unsigned i = 0; i < net->sim->nodes; i++) {
        net_link(net, i, leaf[i >= half], edge);
    }
    net_route(net);
}

void net_ring(Net *net, unsigned switches, bool one_way, const NetLink *edge,
              const NetLink *middle)
{
    unsigned nodes = net->sim->nodes;

    g_assert_cmpuint(switches, >=, 3);
    for (unsigned i = 0; i < switches; i++) {
        g_assert_cmpuint(net_switch_add(net), ==, nodes + i);
    }
    /* This order makes port 0 or 1 of a switch the clockwise one. */
    for (unsigned i = 0; i < switches; i++) {
        net_link(net, nodes + i, nodes + (i + 1) % switches, middle);
    }
    for (unsigned i = 0; i < nodes; i++) {
        net_link(net, i, nodes + i % switches, edge);
    }
    net_route(net);
    for (unsigned i = 0; one_way && i < switches; i++) {
        NetDevice *d = device_at(net, nodes + i);

        for (unsigned node = 0; node < nodes; node++) {
            if (node % switches != i) {
                /*
                 * Switch 0 made its own link first; the others got a link
                 * before.
                 */
                d->route[node] = (NetWays) { { i ? 2 : 1 } };
            }
        }
    }
}

void net_fat_tree(Net *net, unsigned k, const NetLink *edge,
                  const NetLink *middle)
{
    unsigned half = k / 2, nodes = net->sim->nodes;
    unsigned low = nodes, high = low + k * half, top = high + k * half;

    g_assert_true(k >= 2 && k % 2 == 0 && k <= NET_SWITCH_PORTS);
    g_assert_cmpuint(nodes, <=, k * half * half);
    for (unsigned i = 0; i < k * k + half * half; i++) {
        net_switch_add(net);
    }
    for (unsigned i = 0; i < nodes; i++) {
        net_link(net, i, low + i / half, edge);
    }
    for (unsigned pod = 0; pod < k; pod++) {
        for (unsigned i = 0; i < half; i++) {
            for (unsigned j = 0; j < half; j++) {
                net_link(net, low + pod * half + i, high + pod * half + j,
                         middle);
                net_link(net, high + pod * half + i, top + i * half + j,
                         middle);
            }
        }
    }
    net_route(net);
}
