"""The page by itself: well formed, of one piece, harmless, and honest about what it leaves out."""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from consumer.commands.report.page import render
from consumer.commands.terminal import printable
from schemas import PublishedRecord
from tests.unit.commands.report.made import HOUR, NOON, day, record, report

VOID = {"meta", "br", "img", "link", "input", "hr"}
HOSTILE = [
    "</script><script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    '" onload="document.title=\'owned\'" x="',
    "' onload='x",
    "</style><style>body{display:none}</style>",
    "</title></svg><iframe src=//example.org>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "\x00\x1b[31m\u202egnp",
    "-->",
]


class Page(HTMLParser):
    """What a page holds; refuses what is not well formed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open[-1:]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}


def page(records: Iterable[PublishedRecord], source: str = "topic acceptance-records") -> Page:
    return Page(render(report(records), source))


class TestDocument:
    def test_it_is_one_well_formed_document(self) -> None:
        found = page(day(400))

        assert found.html.startswith("<!doctype html>\n")
        assert [tag for tag, _ in found.tags[:3]] == ["html", "head", "meta"]

    def test_it_loads_nothing_and_runs_nothing(self) -> None:
        found = page(day(400))

        assert not found.names() & {"script", "link", "img", "iframe", "object", "image", "use"}
        attributes = {name for _, attributes in found.tags for name in attributes}
        assert not {name for name in attributes if name.startswith(("on", "src", "href", "style"))}
        assert not re.search(r"https?://|url\(|@import", found.html)

    def test_its_policy_allows_its_own_style_and_nothing_else(self) -> None:
        found = page([record()])

        policies = [
            attributes["content"]
            for tag, attributes in found.tags
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        [style] = re.findall(r"<style>(.*?)</style>", found.html, re.DOTALL)
        digest = b64encode(sha256(style.encode()).digest()).decode()
        assert policies == [
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        ]

    def test_it_fits_a_phone_and_both_schemes(self) -> None:
        html = page([record()]).html

        assert 'name="viewport" content="width=device-width, initial-scale=1"' in html
        assert 'name="color-scheme" content="light dark"' in html
        assert "prefers-color-scheme: dark" in html

    def test_every_plot_says_in_words_what_it_shows(self) -> None:
        found = page(day(400))

        plots = [attributes for tag, attributes in found.tags if attributes.get("role") == "img"]
        assert plots
        assert all(attributes["aria-label"] for attributes in plots)
        assert "1, vllm Qwen/Qwen3-32B: " in found.text


class TestStrangers:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_hostile_name_is_text(self, name: str) -> None:
        plain = page([record(n) for n in range(30)])
        hostile = page(
            [
                record(
                    n,
                    engine=name,
                    model=name,
                    instance=name,
                    fleet=name,
                    request_id=name,
                    record_id=f"{name}{n}",
                    source_topic=name,
                )
                for n in range(30)
            ],
            source=name,
        )

        assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
        names = [sorted(attributes) for _, attributes in hostile.tags]
        assert names == [sorted(attributes) for _, attributes in plain.tags]
        assert " ".join(printable(name[:40]).split()) in hostile.text

    def test_a_long_name_is_cut_and_an_unknown_one_is_said(self) -> None:
        found = page([record(0, model="a" * 1_000), record(1, model=None)])

        assert "a" * 100 not in found.text
        assert "unknown model" in found.text

    def test_names_in_any_script_are_kept(self) -> None:
        assert "通义千问/模型-é" in page([record(model="通义千问/模型-é")]).text


class TestWhatItSays:
    def test_an_empty_range_says_so_and_which_it_is(self) -> None:
        found = Page(render(report([], since_ms=NOON, until_ms=NOON + HOUR), "topic t"))

        assert "There is no acceptance record in this range." in found.text
        assert "2026-01-01 12:00 to 2026-01-01 12:59:59 UTC" in found.text
        assert "svg" not in found.names()

    def test_the_head_has_the_ratios_of_all_sums(self) -> None:
        found = page(
            [
                record(0, num_spec_steps=90, num_accepted_draft_tokens=0, num_draft_tokens=270),
                record(1, num_spec_steps=10, num_accepted_draft_tokens=30, num_draft_tokens=30),
            ]
        )

        assert "1.30 tokens per verify step" in found.text
        assert "10% of the drafts accepted" in found.text

    def test_a_model_without_measured_drafts_is_named_as_missing_from_the_rates(self) -> None:
        found = page(
            [record(0), record(1, engine="sglang", model="q", draft_tokens_measured=False)]
        )

        assert (
            "Not in this plot: sglang · q (the engine does not count proposed drafts)."
            in found.text
        )
        assert "1 request whose proposed drafts are unknown, or nominal" in found.text

    def test_what_was_not_summed_is_said(self) -> None:
        found = report([record(0), record(0), record(1, None)])
        text = Page(render(found, "f")).text

        assert "Repeats of a record (the same record_id) count once; number of repeats: 1." in text
        assert "1 request without a time" in text

    def test_few_requests_are_marked(self) -> None:
        assert "few requests" in page([record(0)]).text
        assert "few requests" not in page(record(n) for n in range(50)).text

    def test_a_rate_of_few_measured_requests_is_faint_though_many_have_a_length(self) -> None:
        records = [record(n, NOON + n % 2 * 1000, draft_tokens_measured=n < 10) for n in range(40)]
        lines = [
            str(attributes["class"]) for tag, attributes in page(records).tags if tag == "path"
        ]

        assert lines == ["s1 full", "s1 faint"]

    def test_a_plot_that_no_engine_has_numbers_for_is_left_out(self) -> None:
        text = page([record(0, num_spec_steps=None, num_draft_tokens=None)]).text

        assert "over time" not in text.replace("plots over time", "")
        assert "Accepted drafts per verify step" not in text
        assert "along the stream" not in text

    def test_shares_of_a_histogram_are_of_its_steps(self) -> None:
        histogram = {0: 997, 1: 1, 2: 2}
        text = page(
            [
                record(
                    acceptance_histogram=histogram,
                    num_spec_steps=1_000,
                    num_accepted_draft_tokens=5,
                    num_draft_tokens=None,
                )
            ]
        ).text

        assert ">99% of the steps accepted 0" in text
        assert "<1% of the steps accepted 1" in text

    def test_its_size_is_bounded(self) -> None:
        records = (
            record(
                n,
                NOON + n * 60_000,
                model=f"{n % 600}" * 300,
                instance=f"{n % 1_000}" * 300,
                acceptance_histogram={n % 40: 1},
                num_spec_steps=1,
                num_accepted_draft_tokens=n % 40,
            )
            for n in range(3_000)
        )

        assert len(page(records).html) < 600_000
