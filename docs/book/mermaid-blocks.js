// Draws the Mermaid blocks of a page. The library is loaded where there is one, since it has megabytes.
"use strict";
const blocks = document.querySelectorAll("code.language-mermaid");
if (blocks.length > 0) {
  const script = document.createElement("script");
  script.src = path_to_root + "mermaid.min.js";
  script.onload = async () => {
    const isDark = ["navy", "coal", "ayu"].some((theme) => document.documentElement.classList.contains(theme));
    mermaid.initialize({ startOnLoad: false, theme: isDark ? "dark" : "default" });
    for (const block of blocks) {
      const drawing = document.createElement("pre");
      drawing.className = "mermaid";
      drawing.textContent = block.textContent;
      block.parentElement.replaceWith(drawing);
    }
    await mermaid.run();
  };
  document.head.append(script);
}
