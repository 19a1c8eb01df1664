for (const table of document.querySelectorAll("table.sorted")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const value = row => { const c = row.cells[column]; return "v" in c.dataset ? Number(c.dataset.v) : c.textContent; };
    const rows = [...table.tBodies[0].rows].sort((a, b) => { const x = value(a), y = value(b); return x < y ? -1 : x > y ? 1 : 0; });
    table.tBodies[0].append(...(down ? rows.reverse() : rows));
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
