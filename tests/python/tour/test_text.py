import numpy
import pytest
import text


@pytest.fixture()
def sources(tmp_path):
    folder = tmp_path / "sources"
    (folder / "library").mkdir(parents=True)
    for index in range(80):
        words = " ".join(f"word{(index * 7 + position) % 50}" for position in range(200))
        (folder / "library" / f"page{index}.rst.txt").write_text(f"Page {index}\n======\n\n  {words}\n\tnaïve\n\n")
    return folder


def test_links_are_not_followed(sources):
    (sources / "again").symlink_to(sources / "library")
    (sources / "library" / "link.txt").symlink_to(sources / "library" / "page0.rst.txt")
    files = text.find_files(sources)
    assert len(files) == 80
    assert files == sorted(files)


def test_missing_documentation_names_the_package(tmp_path):
    with pytest.raises(FileNotFoundError, match="apt-get install python3.11-doc"):
        text.find_files(tmp_path / "absent")


def test_every_file_is_in_one_part_and_the_parts_do_not_depend_on_the_folder(sources, tmp_path):
    first = text.prepare(tmp_path / "first", vocab_size=300, sources=sources)
    moved = sources.rename(tmp_path / "moved")
    second = text.prepare(tmp_path / "second", vocab_size=300, sources=moved)
    assert first.num_train_files + first.num_held_out_files == 80
    assert first.num_held_out_files > 0
    assert numpy.array_equal(first.train_tokens(), second.train_tokens())
    assert numpy.array_equal(first.held_out_tokens(), second.held_out_tokens())


def test_tokens_give_the_text_back_exactly(sources, tmp_path):
    corpus = text.prepare(tmp_path / "text", vocab_size=300, sources=sources)
    tokenizer = corpus.tokenizer()
    assert tokenizer.get_piece_size() == 300
    held_out = [path for path in text.find_files(sources) if text.is_held_out(path.relative_to(sources).as_posix())]
    tokens = corpus.held_out_tokens().tolist()
    begins = [index for index, token in enumerate(tokens) if token == text.BEGIN_OF_FILE] + [len(tokens)]
    assert len(begins) == len(held_out) + 1
    for path, begin, end in zip(held_out, begins, begins[1:], strict=False):
        assert tokenizer.decode(tokens[begin + 1 : end]) == path.read_text()
    assert tokenizer.decode(tokenizer.encode("  two  spaces\n\n\ttab 日本\n")) == "  two  spaces\n\n\ttab 日本\n"


def test_second_run_reuses_the_tokens_and_a_changed_file_does_not(sources, tmp_path, monkeypatch):
    first = text.prepare(tmp_path / "text", vocab_size=300, sources=sources)
    with monkeypatch.context() as patch:
        patch.setattr(text, "train_tokenizer", lambda *_: pytest.fail("the tokens were made again"))
        assert text.prepare(tmp_path / "text", vocab_size=300, sources=sources) == first
    (sources / "library" / "page3.rst.txt").write_text("other text\n" * 50)
    assert text.prepare(tmp_path / "text", vocab_size=300, sources=sources).train_path != first.train_path


def test_half_written_tokens_are_made_again(sources, tmp_path):
    corpus = text.prepare(tmp_path / "text", vocab_size=300, sources=sources)
    expected = corpus.train_tokens().copy()
    (corpus.train_path.parent / "corpus.json").unlink()
    corpus.train_path.write_bytes(b"half")
    assert numpy.array_equal(text.prepare(tmp_path / "text", vocab_size=300, sources=sources).train_tokens(), expected)


def test_max_files_spreads_over_all_files(sources, tmp_path):
    corpus = text.prepare(tmp_path / "text", vocab_size=300, sources=sources, max_files=60)
    assert corpus.num_train_files + corpus.num_held_out_files == 60


def test_too_few_files_to_split_are_refused(sources, tmp_path):
    with pytest.raises(ValueError, match="1 files of .* leave the training or the held-out part empty"):
        text.prepare(tmp_path / "text", vocab_size=300, sources=sources, max_files=1)


def test_unigram_entropy_of_known_frequencies():
    # Frequencies 1/2, 1/4, 1/4: 1.5 bits.
    tokens = numpy.array([3, 3, 0, 5])
    assert text.unigram_entropy(tokens, 8) == pytest.approx(1.5 * numpy.log(2), rel=1e-12)
    assert text.unigram_entropy(numpy.array([2, 2]), 8) == 0.0


@pytest.mark.skipif(not text.SOURCES.is_dir(), reason="Debian's package python3.11-doc is not installed")
def test_documentation_is_read_once_although_debian_links_to_it_twice():
    files = text.find_files(text.SOURCES)
    assert len({path.stat().st_ino for path in files}) == len(files)
    assert 9e6 < sum(path.stat().st_size for path in files) < 16e6
