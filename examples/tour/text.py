"""The tour's text: the reST sources of Debian's python3.11-doc as tokens, split by file into training and held-out."""

import dataclasses
import hashlib
import io
import json
import pathlib

import numpy
import sentencepiece

SOURCES = pathlib.Path("/usr/share/doc/python3.11/html/_sources")
PACKAGE = "python3.11-doc"
# One file in 32 is held out: about 140,000 tokens, little enough to evaluate all of them at the end.
HELD_OUT_PERIOD = 32
BEGIN_OF_FILE = 1


@dataclasses.dataclass(frozen=True)
class Corpus:
    tokenizer_path: pathlib.Path
    train_path: pathlib.Path
    held_out_path: pathlib.Path
    vocab_size: int
    num_train_files: int
    num_held_out_files: int
    num_bytes: int

    def train_tokens(self) -> numpy.ndarray:
        return numpy.load(self.train_path, mmap_mode="r")

    def held_out_tokens(self) -> numpy.ndarray:
        return numpy.load(self.held_out_path, mmap_mode="r")

    def tokenizer(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_file=str(self.tokenizer_path))


def find_files(sources: pathlib.Path) -> list[pathlib.Path]:
    """Every text file below `sources`, sorted; links are not followed, because Debian links to the same tree twice."""
    files = sorted(path for path in sources.rglob("*.txt") if path.is_file() and not path.is_symlink())
    if not files:
        raise FileNotFoundError(
            f"no text in {sources}: install Debian's package {PACKAGE} (apt-get install {PACKAGE}), "
            "and check that dpkg is not told to leave /usr/share/doc out (path-exclude in /etc/dpkg)"
        )
    return files


def is_held_out(relative_path: str) -> bool:
    """Depends on the file's name alone, so that the split is the same on every machine."""
    return int.from_bytes(hashlib.sha256(relative_path.encode()).digest()[:8], "big") % HELD_OUT_PERIOD == 0


def unigram_entropy(tokens: numpy.ndarray, vocab_size: int) -> float:
    """Entropy of the tokens' own frequencies, in nats a token: the loss of the best model that ignores all context."""
    counts = numpy.bincount(tokens, minlength=vocab_size).astype(numpy.float64)
    frequencies = counts[counts > 0] / counts.sum()
    return float(-(frequencies * numpy.log(frequencies)).sum())


def train_tokenizer(texts: list[str], vocab_size: int) -> bytes:
    """Byte-fallback BPE that gives every text back exactly: nothing normalised, newlines are tokens of their own."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for text in texts for line in text.split("\n") if line),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["\n"],
        bos_id=BEGIN_OF_FILE,
        max_sentence_length=65536,
        num_threads=1,  # the merges do not depend on it, and two busy cores gain nothing
        minloglevel=2,
    )
    return model.getvalue()


def _encode(tokenizer: sentencepiece.SentencePieceProcessor, texts: list[str]) -> numpy.ndarray:
    tokens: list[int] = []
    for text in texts:
        tokens.append(BEGIN_OF_FILE)
        tokens.extend(tokenizer.encode(text))
    return numpy.array(tokens, dtype=numpy.int32)


def _cache_key(files: list[pathlib.Path], vocab_size: int) -> str:
    state = hashlib.sha256(f"{vocab_size} {HELD_OUT_PERIOD} {sentencepiece.__version__}".encode())
    for path in files:
        state.update(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    return state.hexdigest()[:16]


def prepare(
    directory: pathlib.Path, *, vocab_size: int, sources: pathlib.Path = SOURCES, max_files: int | None = None
) -> Corpus:
    """Tokenizes the sources into `directory`, or finds there what an earlier run left for the same files.

    `max_files` takes that many files, spread evenly over all of them.
    """
    files = find_files(sources)
    if max_files is not None and max_files < len(files):
        files = [files[index * len(files) // max_files] for index in range(max_files)]
    directory = directory / _cache_key(files, vocab_size)
    done = directory / "corpus.json"
    if not done.exists():
        directory.mkdir(parents=True, exist_ok=True)
        done.write_text(json.dumps(_write_corpus(directory, files, sources, vocab_size)))
    return Corpus(
        tokenizer_path=directory / "tokenizer.model",
        train_path=directory / "train.npy",
        held_out_path=directory / "held_out.npy",
        **json.loads(done.read_text()),
    )


def _write_corpus(
    directory: pathlib.Path, files: list[pathlib.Path], sources: pathlib.Path, vocab_size: int
) -> dict[str, int]:
    train_texts: list[str] = []
    held_out_texts: list[str] = []
    for path in files:
        chosen = held_out_texts if is_held_out(path.relative_to(sources).as_posix()) else train_texts
        chosen.append(path.read_text(encoding="utf-8"))
    if not train_texts or not held_out_texts:
        raise ValueError(f"{len(files)} files of {sources} leave the training or the held-out part empty; take more")
    model = train_tokenizer(train_texts, vocab_size)
    (directory / "tokenizer.model").write_bytes(model)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
    numpy.save(directory / "train.npy", _encode(tokenizer, train_texts))
    numpy.save(directory / "held_out.npy", _encode(tokenizer, held_out_texts))
    return {
        "vocab_size": vocab_size,
        "num_train_files": len(train_texts),
        "num_held_out_files": len(held_out_texts),
        "num_bytes": sum(path.stat().st_size for path in files),
    }
