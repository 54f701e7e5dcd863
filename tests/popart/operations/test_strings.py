import pytest
from popart_nodes import Case, case, check

from ipu_keras.popart.exceptions import popart_exception

DAYS = ["Monday", "tuesday", "Änderung", "monday"]
# One word: 2, 3, 5, 4. Two words: 5 6, 7 8, 6 7.
POOL = {
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}
TEXT = [[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]]


def lengths(shortest, longest, skips):
    return {"min_gram_length": shortest, "max_gram_length": longest, "max_skip_count": skips}


@pytest.mark.parametrize(
    "case",
    [
        case("StringNormalizer", [DAYS], DAYS),
        case("StringNormalizer", [DAYS], ["tuesday", "Änderung"], stopwords=["monday"]),
        case("StringNormalizer", [DAYS], ["MONDAY", "TUESDAY", "ÄNDERUNG"], version=10,
             stopwords=["monday"], is_case_sensitive=1, case_change_action="UPPER"),
        case("StringNormalizer", [[DAYS]], [["monday", "tuesday", "änderung", "monday"]],
             case_change_action="LOWER", locale="en_US"),
        case("StringNormalizer", [["a", "a"]], [""], stopwords=["a"]),
        case("StringNormalizer", [[["a"]]], [[""]], stopwords=["A"]),
        case("TfIdfVectorizer", [TEXT], [[0.0, 3.0, 0, 0, 0, 0, 0], [0.0, 0, 1.0, 0, 1.0, 0, 1.0]],
             mode="TF", **lengths(1, 2, 0), **POOL),
        # With up to a word between them: 7 . . 8 is too far, 8 . 7 is the wrong way round.
        case("TfIdfVectorizer", [TEXT[1] + [9, 8]], [0.0, 0, 0, 0, 1.0, 0, 1.0],
             mode="TF", **lengths(2, 2, 1), **POOL),
        case("TfIdfVectorizer", [[7, 5, 8, 7, 5, 8]], [0.0, 0, 0, 0, 0, 2.0, 0],
             mode="TF", **lengths(2, 2, 1), **POOL),
        case("TfIdfVectorizer", [[3, 3, 5]], [0.0, 0.5, 0.25, 0, 0, 0, 0], version=9,
             mode="IDF", weights=[1.0, 0.5, 0.25, 1.0, 1.0, 1.0, 1.0], **lengths(1, 1, 0), **POOL),
        case("TfIdfVectorizer", [[3, 3, 5]], [0.0, 1.0, 0.25, 0, 0, 0, 0],
             mode="TFIDF", weights=[1.0, 0.5, 0.25, 1.0, 1.0, 1.0, 1.0], **lengths(1, 2, 0),
             **POOL),
        case("TfIdfVectorizer", [["b", "a", "b"]], [1.0, 2.0], mode="TF", pool_strings=["b", "a",
             "b"], ngram_counts=[0, 1], ngram_indexes=[1, 0], **lengths(1, 2, 0)),
    ],
)  # fmt: skip
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"case_change_action": "lower"}, "one of NONE, LOWER, UPPER. Received: 'lower'"),
        ({"locale": "tr_TR"}, "languages az, lt, tr have others. Received: locale='tr_TR'"),
    ],
)
def test_what_normalising_cannot_do_is_refused(attributes, text):
    with pytest.raises(popart_exception, match=f"In StringNormalizer 'y0': .*{text}"):
        check(Case("StringNormalizer", [DAYS], None, attributes))


@pytest.mark.parametrize("kind", ["StringNormalizer", "TfIdfVectorizer"])
@pytest.mark.parametrize("text", ["a", [[["a"]]]])
def test_words_stand_in_rows(kind, text):
    counting = {"mode": "TF", "pool_strings": ["a"], "ngram_counts": [0], "ngram_indexes": [0]}
    attributes = {**counting, **lengths(1, 1, 0)} if kind == "TfIdfVectorizer" else {}
    with pytest.raises(popart_exception, match=rf"In {kind} 'y0': Words must be .*: shape \("):
        check(Case(kind, [text], None, attributes))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"mode": "FT"}, "`mode` must be TF, IDF or TFIDF. Received: 'FT'"),
        ({"mode": "TF", "pool_strings": ["a"]}, "`pool_strings` must be given. Received: both"),
    ],
)
def test_what_counting_cannot_do_is_refused(attributes, text):
    with pytest.raises(popart_exception, match=f"In TfIdfVectorizer 'y0': .*{text}"):
        check(Case("TfIdfVectorizer", [TEXT], None, {**POOL, **lengths(1, 1, 0), **attributes}))
