# SPDX-License-Identifier: GPL-2.0-or-later
"""Flows that come and go on one link, and the rates that DCQCN gives them (manual, Congestion control)."""

ASKS = "how fast do DCQCN's flows find their shares when flows come and go?"
WHERE = "simulation"

FLOWS = 4
# Of the SIGCOMM paper: 40 Gb/s, and its table of parameters; g is 1/256
PARAMETERS = {"np_enable": True, "rp_enable": True, "ect_enable": True, "rp_max_rate": 40000, "rp_threshold": 5, "rp_time_reset": 55,
              "rp_byte_reset": 10000000, "rp_ai_rate": 40, "rp_hai_rate": 400, "rp_dce_tcp_g": 1020, "rp_dce_tcp_rtt": 55,
              "rp_rate_reduce_monitor_period": 50, "np_min_time_between_cnps": 50, "rp_clamp_tgt_rate": True}


def scenario(step):
    """Each comes a step after the one before, and they go in the same order."""
    flows = [{"name": str(flow), "from": flow, "to": FLOWS, "size": "64 KiB", "depth": 16, "class": 104,
              "start": f"{flow * step} ms", "stop": f"{(flow + FLOWS) * step} ms"} for flow in range(FLOWS)]
    return {"nodes": FLOWS + 1, "topology": "star", "edge": {"rate": "40 Gb/s", "delay": "1 us", "queue": "4 MiB"},
            "network": {"ecn": {"kmin": "5 KiB", "kmax": "200 KiB", "pmax": "1 %"}, "pfc": {"priorities": 3, "xoff": "1 MiB",
                        "xon": "512 KiB", "headroom": "200 KiB"}},
            "congestion": PARAMETERS, "flows": flows, "watch": [[FLOWS + 1, FLOWS]], "until": f"{(2 * FLOWS) * step} ms",
            "sample": f"{step * 1000 // 40} us", "poll": "2 us"}


def measure(run):
    step = 40 if run.short else 100
    result = run.scenario(f"{FLOWS} flows, one each {step} ms", scenario(step))
    width, rows = step * 10**6 // 40, []
    depth = {row["ns"]: row["bytes"] for row in result.rows["queue"]}
    for row in result.rows["rate"]:
        if row["ns"]:
            rows.append({"ms": round(row["ns"] / 1e6, 3), "phase": (row["ns"] - 1) // (step * 10**6), "flow": row["flow"],
                         "gbps": round(row["bytes"] * 8 / width, 2), "queue_kib": depth[row["ns"]] >> 10})
    return rows


def draw(figure, rows):
    axes = figure.add_subplot(1, 2, 1)
    for flow in range(FLOWS):
        axes.plot(*zip(*((row["ms"], row["gbps"]) for row in rows if row["flow"] == flow)), label=f"flow {flow}")
    axes.set_xlabel("ms")
    axes.set_ylabel("goodput, Gb/s")
    axes.legend()
    axes = figure.add_subplot(1, 2, 2)
    axes.plot(*zip(*((row["ms"], row["queue_kib"]) for row in rows if row["flow"] == 0)), color="C7")
    axes.set_xlabel("ms")
    axes.set_ylabel("queue of the switch, KiB")


def conclude(rows):
    """The shares in the second half of each phase, among those who send"""
    spread, whole = [], []
    for phase in range(2 * FLOWS - 1):
        sending = [flow for flow in range(FLOWS) if flow <= phase < flow + FLOWS]
        late = [row for row in rows if row["phase"] == phase]
        late = late[len(late) // 2:]
        each = [sum(row["gbps"] for row in late if row["flow"] == flow) for flow in sending]
        count = len(late) / FLOWS
        whole.append(sum(each) / count)
        spread.append(sum(each) ** 2 / (len(each) * sum(rate * rate for rate in each)))
    return (min(spread) > 0.85 and min(whole) > 30,
            f"with the parameters of the paper one to {FLOWS} flows share 40 Gb/s with a fairness (Jain) of {min(spread):.2f} to "
            f"{max(spread):.2f}, and use {min(whole):.1f} to {max(whole):.1f} Gb/s of it")
