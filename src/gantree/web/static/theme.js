// Runs before the page is drawn, so that a chosen colour scheme does not flash. The switch itself is in page.js.
const chosenTheme = localStorage.getItem("gantree-theme");
if (chosenTheme === "light" || chosenTheme === "dark") document.documentElement.dataset.theme = chosenTheme;
