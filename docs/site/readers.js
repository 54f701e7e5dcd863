// What the theme makes of a page, for readers with a keyboard or a voice: tables that scroll can be
// reached, and the buttons of programs are not announced as navigation.
const mend = () => {
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])"))
    one.tabIndex = 0;
  for (const one of document.querySelectorAll(".md-code__nav:not([role])")) one.role = "none";
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
