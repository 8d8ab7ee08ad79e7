"""On which stream an action of a plan runs, what it waits for on others, and when copies to the device are issued."""


def stream_of(action):
    """Waits are of the kernels' stream, where what they drop is given away again."""
    return "kernels" if action.do != "copy" else "outward" if action.to_host else "inward"


def last_waits(plan):
    """For each action {stream: the last action there that it waits for}; a wait stands for what it waits for itself."""
    found = []
    for action in plan.actions:
        last = {}
        for wait in action.waits:
            other = plan.actions[wait]
            for stream, number in found[wait].items() if other.do == "wait" else [(stream_of(other), wait)]:
                last[stream] = max(number, last.get(stream, -1))
        found.append(last)
    return found


def issue_order(plan):
    """{number of an action: the copies to the device that are issued before it}.

    A copy to the device waits for all that the kernels' stream has been given when it is issued. Where it stands, that would be the kernel too
    beside which it is to run, for actions stand in the order in which they begin. So it is issued right behind the last thing that it waits
    for, as far as the promised peak has room for it beside the kernels in between.
    """
    promised, live = plan.predicted.get("peak_bytes", 0), peaks_as_issued(plan)
    before, waits, earliest = {}, last_waits(plan), 0
    touched = {}  # {(micro-batch, value): where it was last copied or dropped}
    for number, action in enumerate(plan.actions):
        if stream_of(action) == "inward":
            size = plan.values[action.value].bytes
            earliest = max([earliest, touched.get((action.micro_batch, action.value), -1) + 1, *(wait + 1 for wait in waits[number].values())])
            place = number
            while place > earliest and live[place - 1] + size <= promised:
                place -= 1
                live[place] += size
            before.setdefault(place, []).append(number)
            earliest = place
        for name in (*action.drops, *((action.value,) if action.do == "copy" else ())):
            touched[action.micro_batch, name] = number
    return before


def peaks_as_issued(plan):
    """The peak of each action as they are issued one after the other: what goes out stays until an action waits for it."""
    waits, live, held = last_waits(plan), [], {}  # {copy to the host: bytes that are held for it, though the plan has dropped them}
    copies = {}  # {(micro-batch, value): the last copy to the host}
    for number, action in enumerate(plan.actions):
        for copy in [copy for copy in held if copy <= waits[number].get("outward", -1)]:
            del held[copy]
        live.append(action.peak_bytes + sum(held.values()))
        copies = {key: copy for key, copy in copies.items() if copy > waits[number].get("outward", -1)}
        if stream_of(action) == "outward":
            copies[action.micro_batch, action.value] = number
        for name in action.drops:
            copy = copies.get((action.micro_batch, name))
            if copy is not None:
                held[copy] = plan.values[name].bytes
    return live
