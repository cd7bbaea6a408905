// Base64, as an exported page carries its binary chunks, to bytes.

type WithBase64 = Uint8ArrayConstructor & { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }

/** The bytes of `text`. Throws an Error with a plain sentence when it is not base64. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as WithBase64).fromBase64
  try {
    if (native) return native.call(Uint8Array, text)
    const binary = atob(text)
    const bytes = new Uint8Array(binary.length)
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i)
    return bytes
  } catch {
    throw new Error('a chunk is not base64')
  }
}
