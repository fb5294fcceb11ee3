(() => {
  "use strict";
  const form = document.getElementById("filters");
  const words = [...form.querySelectorAll("input[name=word]")];
  const fixture = document.getElementById("filter-fixture");
  const text = document.getElementById("filter-text");
  const told = document.getElementById("filter-told");
  const rows = [...document.querySelectorAll("#attempts tbody tr")].map((row) => ({
    row,
    word: row.dataset.word,
    fixture: row.dataset.fixture,
    text: row.textContent.toLowerCase(),
    article: document.getElementById(row.dataset.article),
  }));
  const apply = () => {
    const wanted = new Set(words.filter((box) => box.checked).map((box) => box.value));
    const needle = text.value.trim().toLowerCase();
    let count = 0;
    for (const one of rows) {
      const shown =
        wanted.has(one.word) && (fixture.value === "" || fixture.value === one.fixture) && one.text.includes(needle);
      one.row.hidden = !shown;
      if (one.article) one.article.hidden = !shown;
      count += shown;
    }
    told.textContent = `${count} of ${rows.length} shown`;
  };
  form.addEventListener("input", apply);
  form.hidden = false;
  apply();
})();
