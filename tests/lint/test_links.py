from links import violations
from repository import ROOT


def test_links_of_the_repository_lead_somewhere():
    assert violations(ROOT) == []


def test_link_to_a_missing_page_is_caught(tmp_path):
    (tmp_path / "a.md").write_text("[one](b.md#part) [two](https://example.org) `[three](c.md)`\n")
    assert violations(tmp_path) == ["a.md: links to b.md, which does not exist"]
    (tmp_path / "b.md").write_text("")
    assert violations(tmp_path) == []
