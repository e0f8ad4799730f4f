"""Generation of short answers: this product's model class against others, on the same prompts.

    python bench/generation.py --model DIR [--against mlx_lm,hf] [--questions 12]

Few-shot prompts, stop at the end of the line, at most 256 tokens. Each side in turn, in a process of its own,
after a warm-up request; medians of three pairs, their ratio, and how many texts are not the same.
"""

from __future__ import annotations

from pathlib import Path

import sides

SETTINGS = {"until": ["\n"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}


def one_side(side: str, directory: Path, count: int, shots: int) -> None:
    lm = sides.language_model(side, directory)
    lm.generate_until(sides.instances("generate_until", [("A pump for", {**SETTINGS, "max_gen_toks": 4})]))
    asked = [(prompt, dict(SETTINGS)) for prompt in sides.questions(count, shots)]
    seconds, texts = sides.timed(lambda: lm.generate_until(sides.instances("generate_until", asked)))
    sides.report(seconds, texts)


def main() -> None:
    parser = sides.parser(__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--shots", type=int, default=5)
    options = parser.parse_args()
    if options.side:
        one_side(options.side, options.model, options.questions, options.shots)
        return
    against = options.against.split(",")
    with sides.readable_by_all(options.model) as directory:
        runs = {
            side: [
                sides.run_side(
                    __file__,
                    side,
                    directory,
                    "--questions",
                    str(options.questions),
                    "--shots",
                    str(options.shots),
                )
                for _ in range(options.pairs)
            ]
            for side in ("ours", *against)
        }
    ours = sides.medians(runs["ours"])
    print(f"{options.questions} prompts, {options.shots}-shot: ours {ours:.2f} s")
    for side in against:
        theirs = sides.medians(runs[side])
        texts = zip(runs["ours"][0]["values"], runs[side][0]["values"], strict=True)
        different = sum(one != other for one, other in texts)
        print(f"{side:20} {theirs:8.2f} s, ratio {theirs / ours:6.2f}, {different} texts differ")


if __name__ == "__main__":
    main()
