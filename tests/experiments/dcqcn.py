# SPDX-License-Identifier: GPL-2.0-or-later
"""Flows that begin and end on one link: the rates of DCQCN, and the rates of the model (manual, Congestion control)"""

from collections import deque

ASKS = "how fast do DCQCN's flows find their shares when flows come and go, and are these those of the publications?"
WHERE = "simulation"

FLOWS, LINK, MESSAGE, FRAME = 4, 40e9, 4096, 4182
KMIN, KMAX, PMAX = 5 << 10, 200 << 10, 0.01
INCREASE, TIMER, BYTES, RECOVERY, GAIN = 40e6, 55e-6, 10e6, 5, 1 / 256
CNP, ALPHA = 50e-6, 55e-6       # distance of CNPs, and so of decreases; period of alpha
DELAY = 5e-6                    # of the control loop, here; model only
# Link rate and table of parameters of the SIGCOMM paper
PARAMETERS = {"np_enable": True, "rp_enable": True, "ect_enable": True, "rp_max_rate": 40000, "rp_threshold": RECOVERY, "rp_time_reset": 55,
              "rp_byte_reset": 10000000, "rp_ai_rate": 40, "rp_hai_rate": 400, "rp_dce_tcp_g": 1020, "rp_dce_tcp_rtt": 55,
              "rp_rate_reduce_monitor_period": 50, "np_min_time_between_cnps": 50, "rp_clamp_tgt_rate": True}
# Climb of a flow after a burst in Gb/s per millisecond, in a published run of the authors' ns-3 code
# (sc20anonymous/DCQCN-validation). The source is the picture: 9.3 to 20.6 in 15 ms, and 0.5 to 11.4 in 15 ms.
NS3_CLIMB = 0.74
HALF = 17                       # nodes at each switch, there and here
BURST_MS, SEEN_MS = 40, 70


def scenario(step):
    """Returns a scenario whose flows begin one step after the other, and end in the same order."""
    flows = [{"name": str(flow), "from": flow, "to": FLOWS, "size": "64 KiB", "depth": 16, "class": 104,
              "start": f"{flow * step} ms", "stop": f"{(flow + FLOWS) * step} ms"} for flow in range(FLOWS)]
    return {"nodes": FLOWS + 1, "topology": "star", "edge": {"rate": "40 Gb/s", "delay": "1 us", "queue": "4 MiB"},
            "network": {"ecn": {"kmin": KMIN, "kmax": KMAX, "pmax": PMAX}, "pfc": {"priorities": 3, "xoff": "1 MiB",
                        "xon": "512 KiB", "headroom": "200 KiB"}},
            "congestion": PARAMETERS, "flows": flows, "watch": [[FLOWS + 1, FLOWS]], "until": f"{(2 * FLOWS) * step} ms",
            "sample": f"{step * 1000 // 40} us", "poll": "2 us"}


def burst():
    """Returns a scenario of two flows that share the link between two switches. For one millisecond 15 other nodes
    send short messages to the receiver of flow 1, each at the full rate.
    """
    link = {"rate": "40 Gb/s", "delay": "1 us", "queue": "8 MiB"}
    common = {"class": 104, "mtu": 1024}
    flows = [{"name": str(flow), "from": flow, "to": HALF + flow, "size": "16 KiB", "depth": 64, **common} for flow in range(2)]
    flows += [{"name": f"burst-{way}", "from": f"{HALF + 2}-{2 * HALF - 1}", "to": HALF + 1, "size": "4 KiB", "depth": 2, **common,
               "start": f"{BURST_MS} ms", "stop": f"{BURST_MS + 1} ms"} for way in range(32)]
    return {"nodes": 2 * HALF, "topology": "dumbbell", "edge": link, "middle": link, "flows": flows, "congestion": {**PARAMETERS, "rp_time_reset": 50},
            "network": {"ecn": {"kmin": "5 KiB", "kmax": "100 KiB", "pmax": PMAX}}, "until": f"{SEEN_MS} ms", "sample": "500 us",
            "poll": "2 us"}


def marked(queue):
    return 0 if queue <= KMIN else 1 if queue >= KMAX else PMAX * (queue - KMIN) / (KMAX - KMIN)


def events(packets, probability):
    """Returns, for a flow with this number of packets per second, its increases per second by bytes and by time. The
    last two values are those of them after fast recovery.
    """
    if probability >= 1:
        return 0, 0, 0, 0
    if probability < 1e-9:
        return packets * FRAME / BYTES, 1 / TIMER, packets * FRAME / BYTES, 1 / TIMER
    keep, count = 1 - probability, BYTES / FRAME
    by_bytes = packets * probability / (keep ** -count - 1)
    by_time = packets * probability / (keep ** (-TIMER * packets) - 1)
    return by_bytes, by_time, by_bytes * keep ** (RECOVERY * count), by_time * keep ** (RECOVERY * TIMER * packets)


def model(step, each=5e-6):
    """Yields each step of the fluid model of the paper, equations 5 to 9: (seconds, bits per second of each flow,
    bytes of the queue).
    """
    queue, now = 0.0, 0.0
    rate, target, alpha = [0.0] * FLOWS, [0.0] * FLOWS, [1.0] * FLOWS
    past = deque([(0.0, rate[:])], 1 + round(DELAY / each))
    while now < 2 * FLOWS * step:
        probability, before = past[0]
        for flow in range(FLOWS):
            if not flow * step <= now < (flow + FLOWS) * step:
                rate[flow] = 0.0
                continue
            if not rate[flow]:
                rate[flow], target[flow], alpha[flow] = LINK, LINK, 1.0
            packets, ahead = (before[flow] or rate[flow]) / (8 * FRAME), target[flow] - rate[flow]
            by_bytes, by_time, more_bytes, more_time = events(packets, probability)
            decreases = (1 - (1 - probability) ** (CNP * packets)) / CNP
            alpha[flow] += each * GAIN / ALPHA * (1 - (1 - probability) ** (ALPHA * packets) - alpha[flow])
            target[flow] = min(LINK, target[flow] + each * (INCREASE * (more_bytes + more_time) - ahead * decreases))
            rate[flow] = min(LINK, rate[flow] + each * (ahead / 2 * (by_bytes + by_time) - rate[flow] * alpha[flow] / 2 * decreases))
        whole = sum(rate)
        queue = max(0.0, queue + (whole - LINK) * each / 8)
        past.append((marked(queue), rate[:]))
        now += each
        yield now, [one * min(1, LINK / whole) if whole else 0 for one in rate], queue


def model_rows(step, width):
    """Returns rows like those of the simulation: mean rates of each time, counted as payload."""
    rows, sums, count = [], [0.0] * FLOWS, 0
    for now, rates, queue in model(step):
        sums, count = [one + rate for one, rate in zip(sums, rates)], count + 1
        if now >= (len(rows) // FLOWS + 1) * width - 1e-9:
            rows += [row("model", now * 1000, step * 1000, flow, sums[flow] / count / 1e9 * MESSAGE / FRAME, queue) for flow in range(FLOWS)]
            sums, count = [0.0] * FLOWS, 0
    return rows


def row(source, milliseconds, step, flow, gbps, queue):
    return {"source": source, "ms": round(milliseconds, 3), "phase": int((milliseconds - 1e-3) // step), "flow": flow, "gbps": round(gbps, 2),
            "queue_kib": int(queue) >> 10}


def step_of(short):
    return 40 if short else 100


def scenarios(short):
    return [(f"{FLOWS} flows, one each {step_of(short)} ms", scenario(step_of(short))), ("two flows, and a burst beside one of them", burst())]


def measure(run):
    step = step_of(run.short)
    result, after = run.scenarios(scenarios(run.short))
    width = step * 10**6 // 40
    depth = {queue["ns"]: queue["bytes"] for queue in result.rows["queue"]}
    rows = [row("simulated", rate["ns"] / 1e6, step, rate["flow"], rate["bytes"] * 8 / width, depth[rate["ns"]])
            for rate in result.rows["rate"] if rate["ns"]]
    run.say("the model of the paper")
    rows += model_rows(step / 1000, width / 1e9)
    return rows + [row("burst", rate["ns"] / 1e6, SEEN_MS, rate["flow"], rate["bytes"] * 8 / 500000, 0)
                   for rate in after.rows["rate"] if rate["flow"] in (0, 1) and rate["ns"] > (BURST_MS - 5) * 10**6]


def of(rows, source, flow):
    return [each for each in rows if (each["source"], each["flow"]) == (source, flow)]


def climb(rows, flow):
    """Returns the climb in Gb/s per millisecond, from 2 to 7 ms after the beginning of the burst."""
    points = [(each["ms"], each["gbps"]) for each in of(rows, "burst", flow) if BURST_MS + 2 <= each["ms"] <= BURST_MS + 7]
    middle = [sum(column) / len(points) for column in zip(*points)]
    return sum((at - middle[0]) * (rate - middle[1]) for at, rate in points) / sum((at - middle[0]) ** 2 for at, _ in points)


def draw(figure, rows):
    figure.set_size_inches(13, 4.5)
    axes = figure.add_subplot(1, 3, 1)
    for flow in range(FLOWS):
        for source, style, name in (("model", "--", ""), ("simulated", "-", f"flow {flow}")):
            axes.plot(*zip(*((each["ms"], each["gbps"]) for each in of(rows, source, flow))), style, color=f"C{flow}", label=name,
                      linewidth=1 if name else 0.8)
    axes.plot([], [], "--", color="C7", label="model")
    axes.set_xlabel("ms")
    axes.set_ylabel("goodput, Gb/s")
    axes.legend()
    axes = figure.add_subplot(1, 3, 2)
    for source, color in (("simulated", "C7"), ("model", "C3")):
        axes.plot(*zip(*((each["ms"], each["queue_kib"]) for each in of(rows, source, 0))), color=color, label=source)
    axes.set_xlabel("ms")
    axes.set_ylabel("queue of the switch, KiB")
    axes.legend()
    axes = figure.add_subplot(1, 3, 3)
    for flow in range(2):
        axes.plot(*zip(*((each["ms"], each["gbps"]) for each in of(rows, "burst", flow))), color=f"C{flow}", label=f"flow {flow}")
    start = next(each["gbps"] for each in of(rows, "burst", 1) if each["ms"] >= BURST_MS + 2)
    axes.plot([BURST_MS + 2, BURST_MS + 12], [start, start + 10 * NS3_CLIMB], "--", color="C3", label="slope in ns-3")
    axes.set_ylim(0)
    axes.set_xlabel("ms; a burst at 40 ms, of 1 ms")
    axes.set_ylabel("goodput, Gb/s")
    axes.legend()


def late(rows, source, phase):
    """Returns the mean rate in Gb/s of each active flow, in the second half of a phase."""
    sending = [flow for flow in range(FLOWS) if flow <= phase < flow + FLOWS]
    each = [[one["gbps"] for one in of(rows, source, flow) if one["phase"] == phase] for flow in sending]
    return [sum(rates[len(rates) // 2:]) / (len(rates) - len(rates) // 2) for rates in each]


def conclude(rows):
    """Checks the shares, their distance from the model's, and the climb after the burst."""
    phases = range(2 * FLOWS - 1)
    shares = {phase: late(rows, "simulated", phase) for phase in phases}
    spread = [sum(each) ** 2 / (len(each) * sum(rate * rate for rate in each)) for each in shares.values()]
    whole = [sum(each) for each in shares.values()]
    apart = max(abs(one - other) for phase in phases for one, other in zip(shares[phase], late(rows, "model", phase)))
    climbs = [climb(rows, flow) for flow in range(2)]
    # The limit is higher in the short form, because flows have less time to reach their shares.
    near = 3 if of(rows, "simulated", 0)[-1]["ms"] > 700 else 7
    return (min(spread) > 0.85 and min(whole) > 30 and apart < near and all(abs(one / NS3_CLIMB - 1) < 0.2 for one in climbs),
            f"with the parameters of the paper one to {FLOWS} flows share 40 Gb/s with a fairness (Jain) of {min(spread):.2f} to "
            f"{max(spread):.2f}, and use {min(whole):.1f} to {max(whole):.1f} Gb/s of it; no share is more than {apart:.1f} Gb/s from that of the "
            f"paper's fluid model; behind a burst flows gain {min(climbs):.2f} and {max(climbs):.2f} Gb/s in a millisecond, in ns-3 {NS3_CLIMB:.2f}")
