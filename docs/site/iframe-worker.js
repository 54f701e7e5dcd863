// The search runs in a worker, which Chromium does not start from a file. There, its script runs
// in a frame instead, which has an event loop of its own kind: messages go in and out as events.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.scope = frame.contentWindow;
    this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = frame.contentDocument.createElement("script");
    script.src = url;
    this.started = new Promise((resolve) => script.addEventListener("load", resolve));
    frame.contentDocument.head.append(script);
  }

  postMessage(data) {
    this.started.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
