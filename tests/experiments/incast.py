# SPDX-License-Identifier: GPL-2.0-or-later
"""Many senders and one receiver, with the methods that keep the queue short (manual, Congestion control; The network
simulator)
"""

import simulatelib

ASKS = "what do many senders to one receiver do to each other and to others, and what helps?"
WHERE = "simulation"

MODES = {"none": ("nothing", "C7"), "pfc": ("priority flow control", "C3"), "dcqcn": ("DCQCN", "C0"), "both": ("both", "C2")}
QUEUE = "1 MiB"
CLASS = 3 << 5  # traffic class of priority 3, which has flow control
PFC = {"priorities": 3, "xoff": "256 KiB", "xon": "200 KiB"}
SMALL = {"priorities": 3, "xoff": "64 KiB", "xon": "32 KiB", "headroom": "100 KiB"}
ECN = {"kmin": "20 KiB", "kmax": "200 KiB", "pmax": "10 %"}
# Parameters of the DCQCN paper (SIGCOMM 2015). The rate increases are larger, because the links have 100 and not 40 Gb/s.
PARAMETERS = {"np_enable": True, "rp_enable": True, "ect_enable": True, "rp_threshold": 5, "rp_time_reset": 55, "rp_byte_reset": 10000000,
              "rp_ai_rate": 100, "rp_hai_rate": 1000, "rp_dce_tcp_g": 1020, "rp_dce_tcp_rtt": 55, "rp_rate_reduce_monitor_period": 50,
              "np_min_time_between_cnps": 50, "rp_clamp_tgt_rate": True}
RING = 4


def network(mode, half):
    """Returns the network. The headroom is the rate of the link between the switches times two delays of 1 us, and
    two frames.
    """
    made = {"paths": "hash"}
    if mode in ("pfc", "both"):
        made["pfc"] = {**PFC, "headroom": 100 * half * 250 + 10000}
    if mode in ("dcqcn", "both"):
        made["ecn"] = ECN
    return made


def incast(senders, mode, milliseconds):
    """Returns a scenario of two switches. All senders and the victim are at the first switch. The receiver is at the
    second one, beside the node to which the victim sends. The victim's path differs from theirs only in the last
    link.
    """
    half = senders + 1
    receiver, other = half, half + 1
    flows = [{"name": "incast", "from": f"0-{senders - 1}", "to": receiver, "size": "64 KiB", "depth": 4, "timeout": 9, "class": CLASS},
             {"name": "victim", "from": senders, "to": other, "size": "64 KiB", "depth": 4, "timeout": 9, "class": CLASS}]
    return {"nodes": 2 * half, "topology": "dumbbell", "edge": {"rate": "100 Gb/s", "delay": "500 ns", "queue": QUEUE},
            "middle": {"rate": f"{100 * half} Gb/s", "delay": "1 us", "queue": QUEUE}, "network": network(mode, half),
            "congestion": PARAMETERS if mode in ("dcqcn", "both") else False, "flows": flows, "watch": [[2 * half + 1, receiver]],
            "until": f"{milliseconds} ms", "sample": "20 us"}


def ring():
    """Returns four switches in a circle, where all flows cross two links. After the last flow, which begins later,
    each link waits for the next one.
    """
    flows = [{"name": f"flow-{node}", "from": node, "to": (node + 2) % RING, "size": "64 KiB", "depth": 8, "class": CLASS,
              "start": 500000 * (node == RING - 1)} for node in range(RING)]
    return {"nodes": RING, "topology": {"ring-one-way": RING}, "edge": {"rate": "100 Gb/s", "delay": "500 ns", "queue": QUEUE},
            "middle": {"rate": "100 Gb/s", "delay": "500 ns", "queue": QUEUE}, "network": {"pfc": SMALL}, "flows": flows,
            "watch": [[RING + node, RING + (node + 1) % RING] for node in range(RING)],
            "until": "2 ms", "sample": "20 us", "drain": "1 ms"}


def gigabits(result, names, from_ns, until_ns):
    done = sum(row["bytes"] for row in result.rows["rate"] if row["flow"] in names and from_ns < row["ns"] <= until_ns)
    return done * 8 / (until_ns - from_ns)


def row(**given):
    """Returns a row. view: senders, for each number; queue and ring, over time; link: the counters of the ring's
    links at its end
    """
    return {name: given.get(name, "") for name in ("view", "mode", "senders", "us", "link", "goodput_gbps", "victim_gbps", "fairness",
                                                   "queue_kib", "dropped", "marked", "pauses", "resumed", "paused_us", "paused_links")}


def ring_rows(result):
    rows = []
    for at in sorted({queue["ns"] for queue in result.rows["queue"]}):
        done = sum(rate["bytes"] for rate in result.rows["rate"] if rate["ns"] == at)
        queues = [queue for queue in result.rows["queue"] if queue["ns"] == at]
        rows.append(row(view="ring", mode="pfc", us=at // 1000, goodput_gbps=round(done * 8 / 20000, 2),
                        paused_links=sum(bool(queue["paused"]) for queue in queues), queue_kib=max(q["bytes"] for q in queues) >> 10))
    for port in result.rows["port"]:
        if min(port["from"], port["to"]) >= RING and (port["to"] - port["from"]) % RING == 1:
            rows.append(row(view="link", mode="pfc", us=result.total["ns"] // 1000, link=f"{port['from']}-{port['to']}",
                            queue_kib=port["left"] >> 10, dropped=port["dropped"], pauses=port["paused"], resumed=port["resumed"],
                            paused_us=port["paused_ns"] // 1000))
    return rows


def points(short):
    """Returns pairs of a number of senders and a mode."""
    return [(senders, mode) for senders in ((2, 8, 32) if short else (2, 4, 8, 16, 32, 64, 128)) for mode in MODES]


def milliseconds(short):
    return 10 if short else 40


def scenarios(short):
    made = [(f"{senders} senders, {MODES[mode][0]}", incast(senders, mode, milliseconds(short))) for senders, mode in points(short)]
    return [*made, ("a circle of switches with priority flow control", ring())]


def measure(run):
    rows, until = [], milliseconds(run.short) * 10**6
    *results, circle = run.scenarios(scenarios(run.short))
    for (senders, mode), result in zip(points(run.short), results):
        names = [flow["flow"] for flow in result.rows["flow"] if flow["flow"] != "victim"]
        each = [gigabits(result, [flow], until / 2, until) for flow in names]
        rows.append(row(view="senders", mode=mode, senders=senders, goodput_gbps=round(sum(each), 2),
                        victim_gbps=round(gigabits(result, ["victim"], until / 2, until), 2), fairness=round(simulatelib.fairness(each), 3),
                        queue_kib=max(port["deepest"] for port in result.rows["port"] if port["to"] == senders + 1) >> 10,
                        dropped=result.total["dropped"], marked=result.total["marked"],
                        pauses=sum(port["paused"] for port in result.rows["port"])))
        if senders == 32:
            rows += [row(view="queue", mode=mode, senders=senders, us=queue["ns"] // 1000, queue_kib=queue["bytes"] >> 10)
                     for queue in result.rows["queue"] if queue["ns"] <= 10**7]
    return rows + ring_rows(circle)


def draw_senders(axes, rows, column, label):
    for mode, (name, color) in MODES.items():
        points = [(each["senders"], each[column]) for each in rows if (each["view"], each["mode"]) == ("senders", mode)]
        axes.plot(*zip(*points), marker="o", color=color, label=name)
    ticks = sorted({each["senders"] for each in rows if each["view"] == "senders"})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    if column in ("pauses", "dropped"):
        axes.set_yscale("symlog")
    axes.set_ylim(0)
    axes.set_xlabel("senders")
    axes.set_title(label, fontsize=10)


def draw_queue(axes, rows, modes):
    for mode in modes:
        name, color = MODES[mode]
        points = [(each["us"] / 1000, each["queue_kib"]) for each in rows if (each["view"], each["mode"]) == ("queue", mode)]
        axes.plot(*zip(*points), color=color, label=name, linewidth=0.8)
    axes.set_ylim(0, 1100)
    axes.set_xlabel("ms")
    axes.set_title("queue of 32 senders, KiB", fontsize=10)
    axes.legend(loc="upper right")


def draw(figure, rows):
    figure.set_size_inches(13, 7)
    views = (("goodput_gbps", "goodput of all senders, Gb/s"), ("victim_gbps", "goodput of the victim, Gb/s"),
             ("fairness", "fairness (Jain)"), ("pauses", "pauses"))
    for place, (column, label) in enumerate(views, 1):
        axes = figure.add_subplot(2, 4, place)
        draw_senders(axes, rows, column, label)
        if place == 1:
            axes.legend()
    draw_queue(figure.add_subplot(2, 4, 5), rows, ("pfc", "none"))
    draw_queue(figure.add_subplot(2, 4, 6), rows, ("dcqcn", "both"))
    axes = figure.add_subplot(2, 4, 7)
    axes.plot(*zip(*((each["us"], each["goodput_gbps"]) for each in rows if each["view"] == "ring")), color="C3",
              label="goodput of four flows, Gb/s")
    axes.plot(*zip(*((each["us"], 100 * each["paused_links"]) for each in rows if each["view"] == "ring")), "--", color="C7",
              label="100 x paused links")
    axes.set_xlabel("us")
    axes.set_title("circle of switches", fontsize=10)
    axes.legend()
    axes = figure.add_subplot(2, 4, 8)
    links = [each for each in rows if each["view"] == "link"]
    axes.bar(range(len(links)), [each["paused_us"] for each in links], 0.5, color="C7")
    axes.set_xticks(range(len(links)), [each["link"] for each in links])
    axes.set_title(f"its links were paused, of {links[0]['us']} us", fontsize=10)


def conclude(rows):
    most = max(each["senders"] for each in rows if each["view"] == "senders")
    at = {each["mode"]: each for each in rows if each["view"] == "senders" and each["senders"] == most}
    circle = [each for each in rows if each["view"] == "ring"]
    links = [each for each in rows if each["view"] == "link"]
    stands = next((each["us"] for each in circle if all(not later["goodput_gbps"] for later in circle if later["us"] > each["us"])), None)
    return (at["pfc"]["dropped"] == at["both"]["dropped"] == 0 < at["none"]["dropped"] and at["pfc"]["pauses"] > 0 and
            at["both"]["victim_gbps"] > 2 * at["pfc"]["victim_gbps"] and stands is not None and circle[-1]["paused_links"] == RING and
            len(links) == RING and all(each["pauses"] == each["resumed"] + 1 and not each["dropped"] for each in links),
            f"of {most} senders to one the queue drops {at['none']['dropped']} packets; with priority flow control none, but the victim, "
            f"whose path is free, gets {at['pfc']['victim_gbps']:.1f} Gb/s of 100; with DCQCN in addition {at['both']['victim_gbps']:.1f}; fairness is "
            f"{at['none']['fairness']:.2f}, {at['pfc']['fairness']:.2f} and {at['both']['fairness']:.2f}; in a circle of {RING} switches flow "
            f"control is deadlocked after {stands} us: each of {RING} links was requested once more to pause than to continue")
