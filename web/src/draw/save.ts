// Saving files from the page: nothing leaves the machine, the browser writes what the page hands it.

/** Offer `content` as a download called `name`. */
export function save(name: string, content: Blob): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(content)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

/** An SVG as PNG pixels, `scale` of them to a CSS pixel. */
export async function toPng(svg: string, width: number, height: number, scale = 2): Promise<Blob> {
  const url = URL.createObjectURL(new Blob([svg], { type: 'image/svg+xml' }))
  try {
    const image = new Image()
    image.src = url
    await image.decode()
    const canvas = document.createElement('canvas')
    canvas.width = width * scale
    canvas.height = height * scale
    canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height)
    return await new Promise((done, fail) =>
      canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error('the picture is too large'))), 'image/png'),
    )
  } finally {
    URL.revokeObjectURL(url)
  }
}

/** The HTML of an exported page that opens as the view stands now: `fragment` goes into data-view of <html>. */
export function withView(html: string, fragment: string): string {
  const view = fragment.replace(/&/g, '&amp;').replace(/"/g, '&quot;').replace(/</g, '&lt;')
  return html.replace(/<html\b[^>]*>/i, () => `<html lang="en" data-view="${view}">`)
}

/** This page as it was before it drew anything: the file that it was opened from. */
export function pristinePage(): string {
  const root = document.documentElement.cloneNode(true) as HTMLElement
  root.querySelector('#app')!.replaceChildren()
  return `<!doctype html>\n${root.outerHTML}\n`
}
