// The site's search runs in a worker, which browsers refuse to pages that are opened as files: there it runs in a hidden
// frame. The theme looks for the name IFrameWorker in the frame's parent to know that.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      const inside = frame.contentWindow
      const load = source =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src: source, onload: done, onerror: failed })
          inside.document.head.append(script)
        })
      const told = inside.postMessage.bind(inside)
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      const ready = load(url)
      this.postMessage = data => ready.then(() => told(data, "*"))
      this.terminate = () => frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
