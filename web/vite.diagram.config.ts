import { defineConfig, type Plugin } from 'vite';

// What the frame for diagrams is: one document with its script in it. A document of an origin of its own is given
// nothing by the server, so it brings all it needs; the server lets it run exactly this script, by its hash.
const inOneDocument: Plugin = {
  name: 'in-one-document',
  generateBundle(_, bundle) {
    for (const [name, file] of Object.entries(bundle)) {
      if (file.type !== 'chunk') continue;
      delete bundle[name];
      const script = file.code.replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--');
      this.emitFile({ type: 'asset', fileName: 'assets/diagram.html', source: `<!doctype html><meta charset="utf-8"><title>Diagrams</title><body><script>${script}</script>` });
    }
  },
};

export default defineConfig({
  plugins: [inOneDocument],
  define: { 'import.meta': '{}' },
  build: {
    outDir: '../src/clew/fronts/web/dist',
    emptyOutDir: false,
    modulePreload: false,
    chunkSizeWarningLimit: 5000,
    rolldownOptions: { input: 'src/code/diagram_page.ts', output: { format: 'iife', codeSplitting: false } },
  },
});
