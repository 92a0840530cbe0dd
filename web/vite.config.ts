import tailwind from '@tailwindcss/vite';
import react from '@vitejs/plugin-react';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

const SERVER = process.env.CLEW_URL ?? 'http://127.0.0.1:7717';

// Every browser that runs the page reads the newest form of KaTeX's fonts.
const newestFonts: Plugin = {
  name: 'newest-fonts',
  enforce: 'pre',
  transform: (code, id) => (id.endsWith('katex.min.css') ? code.replace(/,url\([^)]*\.(?:woff|ttf)\) format\("[a-z]+"\)/g, '') : undefined),
};

// The base is relative, so that the page works under any mount path. No source is inlined: the page's CSP has no 'unsafe-inline'.
export default defineConfig({
  base: './',
  plugins: [react(), tailwind(), newestFonts],
  resolve: { alias: { '@clew/client': new URL('client/src/index.ts', import.meta.url).pathname } },
  build: {
    outDir: '../src/clew/fronts/web/dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2000,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      '/api': {
        target: SERVER,
        changeOrigin: true,
        // The server answers only to its own page; while developing, this is it.
        configure: (proxy) => proxy.on('proxyReq', (request) => request.setHeader('origin', SERVER)),
      },
    },
  },
  test: { environment: 'happy-dom', include: ['src/**/*.test.{ts,tsx}'] },
});
