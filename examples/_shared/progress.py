"""A progress bar where there is a terminal and tqdm, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType


class Progress:
    def __init__(self, steps: int, done: int) -> None:
        self._steps = steps
        self._bar = None
        try:
            from tqdm import tqdm
        except ImportError:
            self.say("tqdm is not installed: plain progress lines")
        else:
            if sys.stderr.isatty():
                self._bar = tqdm(total=steps, initial=done, unit="step", file=sys.stderr, dynamic_ncols=True)

    def show(self, step: int, text: str) -> None:
        """Steps up to `step` are complete."""
        if self._bar is None:
            self.say(f"step {step:>{len(str(self._steps))}}/{self._steps}  {text}")
        else:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)

    def say(self, text: str) -> None:
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.write(text, file=sys.stdout)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
