"""Draws the pictures of the concepts: slices on islands, a transfer with a reshard, the messages of a run."""

from generate.svg import Drawing

SIDE_PX = 26


def slices() -> str:
    """Draws two slices of a program, and the devices of the two islands to which they are bound."""
    drawing = Drawing(640, 210)
    drawing.text(150, 18, "the program: slices of virtual devices")
    drawing.text(500, 18, "the machines: islands of devices")
    for i, (name, count) in enumerate((("encoder", 4), ("head", 2))):
        y = 40 + 85 * i
        drawing.box(30, y, 240, 62, kind="dashed")
        drawing.text(42, y + 20, name, "left")
        for k in range(count):
            drawing.box(42 + 36 * k, y + 28, SIDE_PX, SIDE_PX, str(k))
        drawing.box(380, y, 240, 62)
        drawing.text(392, y + 20, f"island{i}", "left")
        for k in range(4):
            drawing.box(392 + 36 * k, y + 28, SIDE_PX, SIDE_PX, str(k), "full" if k < count else "")
        drawing.arrow((275, y + 41), (375, y + 41))
    drawing.text(325, 68, "place", "small")
    drawing.text(500, 202, "a network joins the islands", "small")
    drawing.arrow((560, 102), (560, 125), kind="dashed")
    return drawing.svg()


def transfer() -> str:
    """Draws a value, split over four devices of a slice, and its transfer to a slice of two devices."""
    drawing = Drawing(640, 200)
    for left, name, spec, count in ((40, "encoder", 'P("data") over 4', 4), (420, "head", 'P("data") over 2', 2)):
        drawing.text(left + 90, 18, f"{name}: {spec}")
        high = 144 / count
        for k in range(count):
            rows = f"rows {16 // count * k} to {16 // count * (k + 1) - 1}"
            drawing.box(left, 32 + high * k, 180, high - 6, f"device {k}: {rows}", "full")
    for k in range(4):
        drawing.arrow((222, 47 + 36 * k), (416, 62 + 72 * (k // 2)))
    drawing.text(320, 190, "a transfer that is also a reshard: each device gets the rows that it lacks", "small")
    return drawing.svg()


def controller() -> str:
    """Draws the parts of one run: a message to each island, values between islands, futures for the program."""
    drawing = Drawing(680, 220)
    drawing.box(20, 60, 170, 100, kind="pale")
    for i, line in enumerate(("the client", "program, plan,", "futures (pw.Array)")):
        drawing.text(105, 92 + 22 * i, line)
    for i in range(2):
        y = 20 + 110 * i
        drawing.box(400, y, 220, 80, kind="pale")
        drawing.text(510, y + 24, f"island{i}: its part of the plan")
        for k in range(4):
            drawing.box(452 + 32 * k, y + 38, SIDE_PX, SIDE_PX, str(k), "full")
        drawing.arrow((192, 90 + 30 * i), (396, y + 30))
        drawing.arrow((396, y + 52), (192, 108 + 30 * i), kind="dashed")
    drawing.text(290, 40, "one message a run", "small")
    drawing.text(290, 200, "one message back", "small")
    drawing.arrow((510, 102), (510, 127))
    drawing.text(522, 120, "values, device to device", "small left")
    return drawing.svg()
