# The stages of lab 8. labs/lib/grade.py calls them, after labs/grade has built the simulator.
# SPDX-License-Identifier: GPL-2.0-or-later
from grade import Fail, expect
from lab import simulate

RATE, DELAY, FRAME, TIMEOUT = 100e9, 20e-6, 4178, 4.096e-6 * 256
WINDOW, TIMER = 2 * DELAY * RATE / (8 * FRAME), TIMEOUT * RATE / (8 * FRAME)
LOSSES = (0.001, 0.01, 0.03)
SEEDS = (1, 2, 3)               # of the runs of a lossy flow: with few timeouts in a run, single runs differ by a third
MEASURED = {}                   # (loss, selective): bytes, so that each scenario runs once


def near(got, want, part, text):
    """Fails unless got is a number that differs from the right one by at most this part."""
    expect(isinstance(got, (int, float)) and not isinstance(got, bool), f"{text} returned {got!r}, and not a number.")
    expect(abs(got - want) <= part * want, f"{text} returned {got:.4g}, not {want:.4g}.")


def measured(program, loss, selective):
    """Returns the part of the rate that the simulator measures with the student's scenario."""
    for one, kind in ((loss, selective), (0, False)):
        if (one, kind) not in MEASURED:
            seeds = SEEDS if one and not kind else SEEDS[:1]
            MEASURED[one, kind] = sum(simulate(dict(program.scenario(one, kind), seed=seed)).bytes for seed in seeds) / len(seeds)
    return MEASURED[loss, selective] / MEASURED[0, False]


def stage_1(machine, program):
    """The packets in flight."""
    for seconds, rate, frame in ((1e-3, 100e9, 4178), (40e-6, 25e9, 1106), (1e-6, 400e9, 4178)):
        near(program.packets_in(seconds, rate, frame), seconds * rate / 8 / frame, 0.001, f"packets_in({seconds}, {rate:.3g}, {frame})")
    for delay in (20e-6, 1e-6):
        near(program.window(delay), 2 * delay * RATE / 8 / FRAME, 0.001, f"window({delay})")


def stage_2(machine, program):
    """A first model."""
    for loss in (0, 0.001, 0.1):
        near(program.selective_repeat(loss), 1 / (1 + loss), 0.011, f"selective_repeat({loss})")
        for in_flight in (10, 120):
            near(program.go_back_n(loss, in_flight), 1 / (1 + loss * in_flight), 0.011, f"go_back_n({loss}, {in_flight})")


def stage_3(machine, program):
    """Measure."""
    made = program.scenario(0.01, True)
    expect(isinstance(made, dict), f"scenario() returned {made!r}, and not a map (dict).")
    for selective in (False, True):
        result = simulate(program.scenario(0.01, selective))
        part = result.lost / result.sent
        expect(0.007 < part < 0.013, f"The link lost {result.lost} of {result.sent} packets for a loss of 0.01. The key loss of edge is a fraction, or has the unit %.")
        once = result.retransmissions <= 1.5 * result.lost
        expect(once == selective, f"The flow with selective_repeat {str(selective).lower()} retransmitted {result.retransmissions} packets for {result.lost} lost ones. "
                                  "The key selective_repeat of the flow is the second argument.")
    measured(program, 0, False)
    rate = MEASURED[0, False] * 8 / 20e-3
    expect(rate > 0.9 * RATE, f"Without loss the flow has {rate / 1e9:.1f} Gb/s in 20 ms. The edge has 100 Gb/s and a delay of 20 us; the flow has messages of 64 KiB and depth 64, "
                              "because the window must fit; until is 20 ms.")
    got, want = measured(program, 0.001, False), program.go_back_n(0.001, WINDOW)
    expect(abs(got - want) < 0.1 * want, f"The measured part is {got:.3f}, the predicted one {want:.3f}: they should be near at a loss of 0.1 %.")


def stage_4(machine, program):
    """A better model."""
    for loss in LOSSES:
        got, first = measured(program, loss, False), program.go_back_n(loss, WINDOW)
        want = program.go_back_n_with_timer(loss, WINDOW, TIMER)
        expect(isinstance(want, (int, float)), f"go_back_n_with_timer() returned {want!r}, and not a number.")
        expect(abs(want - got) <= 0.2 * got, f"At a loss of {100 * loss:g} % the simulator measures {got:.3f} of the rate, and go_back_n_with_timer({loss}, {WINDOW:.1f}, {TIMER:.0f}) "
                                             f"predicts {want:.3f}. The first model predicts {first:.3f}. Two timeouts for each loss, times the loss, are missing.")
        got = measured(program, loss, True)
        expect(abs(got - program.selective_repeat(loss)) < 0.1, f"Selective repeat has {got:.3f} of the rate at a loss of {100 * loss:g} %, and not the predicted part.")


def stage_5(machine, program):
    """Predict, then measure."""
    for part in (0.8, 0.5):
        loss = program.largest_loss(part, WINDOW, TIMER)
        expect(isinstance(loss, float) and 0 < loss < 1, f"largest_loss({part}, ...) returned {loss!r}, and not a loss between 0 and 1.")
        back = 1 / (1 + loss * WINDOW + 2 * loss * loss * TIMER)
        expect(abs(back - part) < 0.01, f"largest_loss({part}, ...) returned {loss:.6f}, but the model of step 4 predicts {back:.3f} of the rate at this loss.")
        got = measured(program, loss, False)
        expect(abs(got - part) < 0.2 * part, f"At the loss of {100 * loss:.4f} % the simulator measures {got:.3f} of the rate, and not {part}.")


def stage_6(machine, program):
    """Reordering without loss."""
    results = {}
    for mode, adaptive in (("hash", False), ("spray", False), ("spray", True)):
        made = program.paths(mode, adaptive)
        expect(isinstance(made, dict) and made.get("network", {}).get("paths") == mode, f"paths({mode!r}, ...) returned {made!r}: the key paths of network is the first argument.")
        results[mode, adaptive] = simulate(made)
        expect(made.get("topology") == {"leaf-spine": 4}, f"The topology of paths({mode!r}, ...) is {made.get('topology')!r}: two switches with four paths between them are {{leaf-spine: 4}}.")
        expect(not results[mode, adaptive].lost, f"The scenario paths({mode!r}, {adaptive}) loses packets. The links have no loss.")
    expect(not results["hash", False].retransmissions, "With mode hash each flow takes one path, so nothing is retransmitted. Your scenario differs.")
    if not results["spray", False].retransmissions:
        raise Fail("With mode spray and go-back-N the simulator retransmitted nothing. The topology {leaf-spine: 4} has four paths; without adaptive_routing "
                   "the receiver drops packets out of order. Several flows must meet, for example from [0, 1] to \"+2\".")
    expect(not results["spray", True].retransmissions, f"With mode spray and adaptive routing {results['spray', True].retransmissions} packets were retransmitted. The key adaptive_routing of the flow is the second argument.")
    expect(results["spray", True].bytes > 1.5 * results["spray", False].bytes, "Adaptive routing is not faster than spraying with go-back-N. Your scenarios differ in more than the paths.")
