/*
 * Reads scenarios; see scenario.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "scenario.h"

#define NODES_MAX 4096u
#define FLOWS_MAX 65536u

typedef struct Member {
    const char *name;
    size_t offset, size;
} Member;

#define MEMBER(type, name, member) \
    { name, offsetof(type, member), sizeof_field(type, member) }

static const Member of_scenario[] = {
    MEMBER(Scenario, "seed", seed), MEMBER(Scenario, "nodes", nodes),
    MEMBER(Scenario, "until", until), MEMBER(Scenario, "sample", sample),
    MEMBER(Scenario, "poll", poll), MEMBER(Scenario, "drain", drain),
    MEMBER(Scenario, "trace", trace), { NULL },
};

static const Member of_link[] = {
    MEMBER(NetLink, "rate", rate), MEMBER(NetLink, "delay", delay),
    MEMBER(NetLink, "queue", queue), MEMBER(NetLink, "loss", loss.loss),
    MEMBER(NetLink, "to_bad", loss.to_bad),
    MEMBER(NetLink, "to_good", loss.to_good),
    MEMBER(NetLink, "loss_bad", loss.loss_bad),
    MEMBER(NetLink, "down_from", loss.down_from),
    MEMBER(NetLink, "down_to", loss.down_to),
    MEMBER(NetLink, "period", loss.period), { NULL },
};

static const Member of_network[] = {
    MEMBER(NetOptions, "paths", paths), MEMBER(NetOptions, "kmin", kmin),
    MEMBER(NetOptions, "kmax", kmax), MEMBER(NetOptions, "pmax", max_mark),
    MEMBER(NetOptions, "pfc", pfc), MEMBER(NetOptions, "xoff", xoff),
    MEMBER(NetOptions, "xon", xon), MEMBER(NetOptions, "headroom", headroom),
    { NULL },
};

#define OF_CONGESTION(name) MEMBER(QrnicCongestionCtx, #name, name)
static const Member of_congestion[] = {
    OF_CONGESTION(flags), OF_CONGESTION(np_cnp_dscp),
    OF_CONGESTION(np_cnp_prio), OF_CONGESTION(rp_threshold),
    OF_CONGESTION(np_min_time_between_cnps), OF_CONGESTION(rp_min_dec_fac),
    OF_CONGESTION(rp_gd), OF_CONGESTION(rp_dce_tcp_g),
    OF_CONGESTION(rp_initial_alpha_value), OF_CONGESTION(rp_dce_tcp_rtt),
    OF_CONGESTION(rp_time_reset), OF_CONGESTION(rp_byte_reset),
    OF_CONGESTION(rp_rate_reduce_monitor_period), OF_CONGESTION(rp_ai_rate),
    OF_CONGESTION(rp_hai_rate), OF_CONGESTION(rp_min_rate),
    OF_CONGESTION(rp_max_rate), OF_CONGESTION(rp_rate_to_set_on_first_cnp),
    { NULL },
};

static const Member of_flow[] = {
    MEMBER(ScenarioFlow, "from", from), MEMBER(ScenarioFlow, "to", to),
    MEMBER(ScenarioFlow, "operation", operation),
    MEMBER(ScenarioFlow, "size", size), MEMBER(ScenarioFlow, "depth", depth),
    MEMBER(ScenarioFlow, "start", start), MEMBER(ScenarioFlow, "stop", stop),
    MEMBER(ScenarioFlow, "pause", pause),
    MEMBER(ScenarioFlow, "messages", messages),
    MEMBER(ScenarioFlow, "class", traffic_class),
    MEMBER(ScenarioFlow, "priority", priority),
    MEMBER(ScenarioFlow, "limit", limit), MEMBER(ScenarioFlow, "burst", burst),
    MEMBER(ScenarioFlow, "options", options),
    MEMBER(ScenarioFlow, "timeout", timeout), MEMBER(ScenarioFlow, "mtu", mtu),
    { NULL },
};

static const Member of_fault[] = {
    MEMBER(ScenarioFault, "psn", fault.psn),
    MEMBER(ScenarioFault, "transmission", fault.transmission),
    MEMBER(ScenarioFault, "fate", fault.fate),
    MEMBER(ScenarioFault, "late", fault.late),
    MEMBER(ScenarioFault, "answers", answers), { NULL },
};

static bool set(void *object, const Member *member, const char *name,
                const char *text)
{
    uint64_t value, limit;
    uint8_t *at;

    while (member->name && strcmp(member->name, name)) {
        member++;
    }
    if (!member->name || !g_ascii_string_to_unsigned(text, 10, 0, INT64_MAX,
                                                     &value, NULL)) {
        return false;
    }
    limit = member->size == 8 ? UINT64_MAX : (1ull << member->size * 8) - 1;
    at = (uint8_t *)object + member->offset;
    memcpy(at, &value, member->size);       /* The host is little endian */
    return value <= limit;
}

/* Returns the first wrong word, or NULL. */
static const char *set_all(void *object, const Member *members, char **word)
{
    for (; *word; word++) {
        char *is = strchr(*word, '=');

        if (!is) {
            return *word;
        }
        *is = 0;
        if (!set(object, members, *word, is + 1)) {
            *is = '=';
            return *word;
        }
    }
    return NULL;
}

static int flow_find(const Scenario *s, const char *name)
{
    for (unsigned i = 0; i < s->flow->len; i++) {
        if (!strcmp(g_array_index(s->flow, ScenarioFlow, i).name, name)) {
            return i;
        }
    }
    return -1;
}

static const char *flow_parse(Scenario *s, char **word)
{
    ScenarioFlow f = {
        .to = 1, .size = 65536, .depth = 4, .stop = INT64_MAX, .timeout = 12,
        .mtu = QRNIC_MTU_4096,
    };
    const char *wrong = set_all(&f, of_flow, word + 1);

    if (wrong) {
        return wrong;
    }
    g_strlcpy(f.name, word[0], sizeof(f.name));
    if (f.from >= s->nodes || f.to >= s->nodes || f.from == f.to) {
        return "from, to: not two of the nodes, which come first";
    }
    if (f.operation > SCENARIO_READ || !f.size || f.size > 1 << 24 ||
        !f.depth || f.depth > 1024 || f.mtu < QRNIC_MTU_256 ||
        f.mtu > QRNIC_MTU_4096 || f.timeout > 31 ||
        f.priority > QRNIC_PRIORITY_LEVELS ||
        (f.limit && f.limit < QRNIC_MIN_RATE_LIMIT * 1000ull) ||
        f.limit > QRNIC_MAX_RATE_LIMIT * 1000ull ||
        s->flow->len == FLOWS_MAX || flow_find(s, f.name) >= 0) {
        return "flow: out of range, or its name is not its own";
    }
    g_array_append_val(s->flow, f);
    return NULL;
}

static const char *fault_parse(Scenario *s, char **word)
{
    ScenarioFault f = { .fault.transmission = 1 };
    const char *wrong = set_all(&f, of_fault, word + 1);
    int flow = flow_find(s, word[0]);

    if (wrong || flow < 0 || f.fault.fate > NET_FATE_LATE) {
        return wrong ? wrong : word[0];
    }
    f.flow = flow;
    g_array_append_val(s->fault, f);
    return NULL;
}

static const char *link_parse(GArray *links, const NetLink *usual, char **word)
{
    ScenarioLink l = { .link = *usual };
    const char *wrong = NULL;
    uint64_t number[2];

    for (unsigned i = 0; i < 2; i++) {
        if (!word[i] || !g_ascii_string_to_unsigned(word[i], 10, 0, UINT32_MAX,
                                                    &number[i], NULL)) {
            return "link: between which two devices?";
        }
    }
    l.a = number[0];
    l.b = number[1];
    wrong = set_all(&l.link, of_link, word + 2);
    if (!wrong) {
        g_array_append_val(links, l);
    }
    return wrong;
}

static const char *topology_parse(Scenario *s, char **word)
{
    uint64_t size = 0;

    g_strlcpy(s->topology, word[0], sizeof(s->topology));
    if (word[1] && !g_ascii_string_to_unsigned(word[1], 10, 0, UINT32_MAX,
                                               &size, NULL)) {
        return word[1];
    }
    s->size = size;
    return NULL;
}

static const char *line_parse(Scenario *s, char **word)
{
    const char *what = word[0];

    if (!word[1]) {
        return what;
    }
    if (!strcmp(what, "topology")) {
        return topology_parse(s, word + 1);
    } else if (!strcmp(what, "edge")) {
        return set_all(&s->edge, of_link, word + 1);
    } else if (!strcmp(what, "middle")) {
        return set_all(&s->middle, of_link, word + 1);
    } else if (!strcmp(what, "link")) {
        return link_parse(s->link, &s->middle, word + 1);
    } else if (!strcmp(what, "watch")) {
        return link_parse(s->watch, &s->middle, word + 1);
    } else if (!strcmp(what, "network")) {
        return set_all(&s->network, of_network, word + 1);
    } else if (!strcmp(what, "congestion")) {
        s->congested = true;
        return set_all(&s->congestion, of_congestion, word + 1);
    } else if (!strcmp(what, "flow")) {
        return flow_parse(s, word + 1);
    } else if (!strcmp(what, "fault")) {
        return fault_parse(s, word + 1);
    }
    return set(s, of_scenario, what, word[1]) && !word[2] ? NULL : what;
}

/* Returns the error of the topology, or NULL. */
static const char *topology_check(const Scenario *s)
{
    const char *t = s->topology;
    uint64_t nodes = s->nodes, size = s->size, half = nodes - nodes / 2;

    if (!strcmp(t, "pair")) {
        return nodes == 2 ? NULL : "topology: a pair has 2 nodes";
    } else if (!strcmp(t, "star")) {
        return nodes <= NET_SWITCH_PORTS ? NULL :
               "topology: the switch of a star has 256 ports";
    } else if (!strcmp(t, "dumbbell")) {
        return half + 1 <= NET_SWITCH_PORTS ? NULL :
               "topology: each switch of a dumbbell has 256 ports";
    } else if (!strcmp(t, "leaf-spine")) {
        return size && half + size <= NET_SWITCH_PORTS ? NULL :
               "topology: leaf-spine: 1 or more, and with half of the nodes "
               "no more than the 256 ports of a switch";
    } else if (!strcmp(t, "ring") || !strcmp(t, "ring-one-way")) {
        return size >= 3 && size <= NODES_MAX &&
               DIV_ROUND_UP(nodes, size) + 2 <= NET_SWITCH_PORTS ? NULL :
               "topology: a ring has 3 or more switches of 256 ports each";
    } else if (!strcmp(t, "fat-tree")) {
        return size && size % 2 == 0 && size <= NET_SWITCH_PORTS &&
               nodes <= size * size * size / 4 ? NULL :
               "topology: fat-tree: K is even, no more than 256, and K^3/4 "
               "no less than the nodes";
    }
    return "no such topology";
}

static const char *whole_check(const Scenario *s)
{
    const char *topology = topology_check(s);

    return s->nodes < 2 || s->nodes > NODES_MAX ? "nodes: 2 to 4096" :
           topology ? topology :
           !s->flow->len ? "no flow" :
           s->until <= 0 || s->sample <= 0 || s->poll <= 0 ?
           "until, sample, poll: more than 0" :
           s->edge.rate < 1000 || s->middle.rate < 1000 ?
           "edge, middle: no rate" : NULL;
}

/* Returns the reset values of the congestion parameters. */
static QrnicCongestionCtx congestion_usual(void)
{
    Sim *s = sim_new(0, NULL);
    QrnicCongestionCtx c;

    qrnic_congestion_query(s->node[0].engine, &c);
    sim_free(s);
    return c;
}

Scenario *scenario_parse(const char *text, char **error)
{
    g_auto(GStrv) line = g_strsplit(text, "\n", -1);
    Scenario *s = g_new0(Scenario, 1);
    const char *wrong = NULL;
    unsigned i;

    *s = (Scenario) {
        .seed = 1, .nodes = 2, .sample = 10 * SIM_US, .poll = SIM_US,
        .edge = { .rate = 100000000000, .delay = 500, .queue = 1 << 20 },
        .congestion = congestion_usual(),
        .flow = g_array_new(false, true, sizeof(ScenarioFlow)),
        .link = g_array_new(false, true, sizeof(ScenarioLink)),
        .watch = g_array_new(false, true, sizeof(ScenarioLink)),
        .fault = g_array_new(false, true, sizeof(ScenarioFault)),
    };
    s->middle = s->edge;
    for (i = 0; line[i] && !wrong; i++) {
        g_auto(GStrv) word = g_strsplit_set(g_strstrip(line[i]), " ", -1);

        if (word[0] && *word[0]) {
            wrong = line_parse(s, word);
            *error = wrong ? g_strdup_printf("line %u: %s", i + 1, wrong) :
                             NULL;
        }
    }
    if (!wrong) {
        wrong = whole_check(s);
        *error = g_strdup(wrong);
    }
    if (wrong) {
        scenario_free(s);
        return NULL;
    }
    return s;
}

void scenario_free(Scenario *s)
{
    g_array_free(s->flow, true);
    g_array_free(s->link, true);
    g_array_free(s->watch, true);
    g_array_free(s->fault, true);
    g_free(s);
}
