"""PyTorch's side of `run`: products by its libraries, four networks with random weights, and the time of calls on the device."""
import inspect, math, statistics, time

import torch
from torch import nn


def device_time(call, calls=1, pause=0.0):
    """The median time of a call in µs, by events around so many in a row. Pauses let the GPU cool down."""
    times = []
    for _ in range(60):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / calls)
        time.sleep(pause)
    return statistics.median(times[10:])


def product_time(side, precision):
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    dtype = torch.float16 if precision == "f16" else torch.float32
    a = torch.rand(side, side, device="cuda").to(dtype)
    b = torch.randn(side, side, device="cuda").mul_(side**-0.5).to(dtype)
    c = torch.empty_like(a)
    return device_time(lambda: torch.mm(a, b, out=c), 10, 0.01)


def conv(inp, out, k=3, stride=1, groups=1, act=None):
    layers = [nn.Conv2d(inp, out, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(out, momentum=1.0)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Sum(nn.Module):
    """A residual block."""

    def __init__(self, body, short=None, act=None):
        super().__init__()
        self.body, self.short, self.act = body, short or nn.Identity(), act or nn.Identity()

    def forward(self, x):
        return self.act(self.body(x) + self.short(x))


def head(inp, classes):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inp, classes)]


def resnet18(classes):
    layers, inp = [conv(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for out, stride in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        body = nn.Sequential(conv(inp, out, stride=stride, act=nn.ReLU), conv(out, out))
        layers.append(Sum(body, conv(inp, out, 1, stride) if inp != out else None, nn.ReLU()))
        inp = out
    return nn.Sequential(*layers, *head(512, classes))


def mobilenet_v2(classes):
    layers, inp = [conv(3, 32, stride=2, act=nn.ReLU6)], 32
    for expand, out, blocks, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for step in [stride] + [1] * (blocks - 1):
            wide = inp * expand
            body = [conv(inp, wide, 1, act=nn.ReLU6)] if expand > 1 else []
            body = nn.Sequential(*body, conv(wide, wide, stride=step, groups=wide, act=nn.ReLU6), conv(wide, out, 1))
            layers.append(Sum(body) if step == 1 and inp == out else body)
            inp = out
    return nn.Sequential(*layers, conv(320, 1280, 1, act=nn.ReLU6), *head(1280, classes))


class Yolo(nn.Module):
    """A backbone, a neck from coarse to fine, and three heads."""

    def __init__(self):
        super().__init__()
        block = lambda n: Sum(nn.Sequential(conv(n, n // 2, act=nn.SiLU), conv(n // 2, n, act=nn.SiLU)))
        step = lambda inp, out: nn.Sequential(conv(inp, out, stride=2, act=nn.SiLU), block(out))
        self.first = nn.Sequential(conv(3, 16, stride=2, act=nn.SiLU), step(16, 32), step(32, 64))
        self.middle, self.last, self.up = step(64, 128), step(128, 256), nn.Upsample(scale_factor=2)
        self.neck4, self.neck3 = (nn.Sequential(conv(inp, out, 1, act=nn.SiLU), block(out)) for inp, out in ((384, 128), (192, 64)))
        self.heads = nn.ModuleList(nn.Sequential(conv(n, 64, act=nn.SiLU), nn.Conv2d(64, 24, 1)) for n in (64, 128, 256))

    def forward(self, x):
        p3 = self.first(x)
        p4 = self.middle(p3)
        p5 = self.last(p4)
        n4 = self.neck4(torch.cat([self.up(p5), p4], 1))
        n3 = self.neck3(torch.cat([self.up(n4), p3], 1))
        heads = [head(x).flatten(2).transpose(1, 2) for head, x in zip(self.heads, (n3, n4, p5))]
        return torch.cat(heads, 1)


class Former(nn.Module):
    def __init__(self, wide, layers, classes):
        super().__init__()
        layer = nn.TransformerEncoderLayer(wide, wide // 64, 4 * wide, 0, "gelu", batch_first=True, norm_first=True)
        self.layers, self.last = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Linear(wide, classes)

    def forward(self, x):
        return self.last(self.layers(x).mean(1))


def networks(quick):
    """Each network with the shape of an item."""
    side, large, wide, layers, tokens, classes = (64, 64, 64, 1, 16, 16) if quick else (224, 320, 384, 6, 196, 1000)
    torch.manual_seed(1)
    made = {"resnet18": (resnet18(classes), [3, side, side]), "mobilenet_v2": (mobilenet_v2(classes), [3, side, side]),
            "yolo_like": (Yolo(), [3, large, large]), "transformer": (Former(wide, layers, classes), [tokens, wide])}
    for network, shape in made.values():
        for weight in (weight for weight in network.parameters() if weight.dim() > 1):
            nn.init.normal_(weight, 0, (1.6 / weight[0].numel()) ** 0.5)
        # As in trained networks, layers see numbers around zero, and so are the outputs: items get different labels.
        size, last = math.prod(shape), [*network.children()][-1]
        with torch.no_grad():
            x = torch.randn(8, size).cumsum(1).div(size**0.5).reshape(8, *shape)
            network(x)
            y = network.eval()(x).mean(0)
            if isinstance(last, nn.Linear):
                last.bias -= y
    return made


def export(network, shape, path):
    known = inspect.signature(torch.onnx.export).parameters
    # The fused kernel of attention has no operators of ONNX.
    torch.backends.mha.set_fastpath_enabled(False)
    torch.onnx.export(network, (torch.zeros(1, *shape),), str(path), input_names=["x"], output_names=["y"], opset_version=17,
                      dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, **({"dynamo": False} if "dynamo" in known else {}))
    torch.backends.mha.set_fastpath_enabled(True)
