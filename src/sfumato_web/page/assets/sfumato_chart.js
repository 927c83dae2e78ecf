// A Vega-Lite chart that follows the look of the page; all of it is drawn in the browser.
let library = null;
function loaded(source) {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = source;
    script.onload = resolve;
    script.onerror = () => reject(new Error("the drawing library did not load"));
    document.head.append(script);
  });
  return library;
}
function look() {
  const style = getComputedStyle(document.body);
  const colour = (name) => style.getPropertyValue(name).trim();
  const [ink, soft, line] = [colour("--ink"), colour("--soft"), colour("--line")];
  const text = { labelColor: soft, titleColor: soft, labelFontSize: 11.5, titleFontSize: 12,
    titleFontWeight: 500 };
  return { background: "transparent", view: { stroke: null }, font: colour("--font"),
    axis: { ...text, gridColor: line, domainColor: line, tickColor: line },
    legend: text, title: { color: ink, subtitleColor: soft }, rule: { color: ink },
    text: { color: ink } };
}
export default {
  template: `<div class="chart" role="img" :aria-label="label"></div>`,
  props: { spec: Object, label: String, library: String },
  mounted() {
    this.theme = new MutationObserver(() => this.draw());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.draw();
  },
  unmounted() {
    this.theme.disconnect();
    this.result?.finalize();
  },
  watch: { spec() { this.draw(); } },
  methods: {
    async draw() {
      if (this.drawing) { this.again = true; return; }
      this.drawing = true;
      do {
        this.again = false;
        await this.once();
      } while (this.again);
      this.drawing = false;
    },
    async once() {
      if (!this.spec || !this.$el) return;
      const place = document.createElement("div");
      place.className = "drawing";
      this.$el.append(place);
      try {
        await loaded(this.library);
        const spec = JSON.parse(JSON.stringify(this.spec));
        const result = await vegaEmbed(place, spec,
          { actions: false, renderer: "svg", config: look() });
        this.result?.finalize();
        this.result = result;
        for (const old of [...this.$el.children]) if (old !== place) old.remove();
        place.classList.remove("drawing");
        this.$el.dataset.drawn = String(Number(this.$el.dataset.drawn || 0) + 1);
      } catch (error) {
        place.remove();
        this.$el.textContent = "This chart could not be drawn: " + error.message;
      }
    },
  },
};
