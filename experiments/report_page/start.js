// What the page says first, and what its controls do.
document.title = `${report.experiment.name}: Plimsoll report`;
document.getElementById("name").textContent = report.experiment.name;
document.getElementById("made").textContent = `Made by ${report.made_by}. Results by ${report.results_by}.`;
if (report.load) document.getElementById("first").append(loadLine(report.load));
if (report.cases_left_out) {
  document.getElementById("first").append(element("p", {}, `${report.cases_left_out} more cases are left out here; results.csv and report.json have them.`));
}
for (const none of report.impossible) {
  document.getElementById("figures").after(element("p", {}, `${none.trace} on ${none.platform}: no answers: ${none.reason}`));
}
for (const input of document.querySelectorAll("input[type=radio]")) {
  input.addEventListener("change", () => { view[input.name] = input.value; redrawAll(); });
}
document.getElementById("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
showCases();
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
addEventListener("resize", () => { clearTimeout(redraws.timer); redraws.timer = setTimeout(redrawAll, 150); });
