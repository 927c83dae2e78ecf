// The browser's own slider. It holds its place itself, so that what the page shows anew
// while it is being moved does not move it back.
export default {
  template: `<input type="range" min="0" :max="most" step="1" v-model.number="place"
    @input="$emit('moved', place)">`,
  props: { most: Number, stand: Array },
  data() { return { place: this.stand[0] }; },
  watch: { stand(set) { this.place = set[0]; } },
};
