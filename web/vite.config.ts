import { svelte } from '@sveltejs/vite-plugin-svelte'
import { resolve } from 'node:path'
import { defineConfig } from 'vitest/config'
import { viteSingleFile } from 'vite-plugin-singlefile'
import { lessons } from './lessons.plugin.ts'

// One page per run (vite build --mode view|explore|learn): each becomes one HTML file that needs nothing else.
// Python serves it as it is, or puts a recording into its <script type="application/json"> and saves it.
export default defineConfig(({ mode }) => ({
  base: './',
  plugins: [svelte(), lessons(), viteSingleFile({ removeViteModuleLoader: true })],
  build: {
    outDir: resolve(import.meta.dirname, '../src/regard/static'),
    emptyOutDir: false,
    target: 'es2022',
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      input: resolve(import.meta.dirname, `${mode === 'production' ? 'view' : mode}.html`),
    },
  },
  test: {
    environment: 'node',
    include: ['tests/**/*.test.ts'],
  },
}))
