// Browsers run no Worker in pages from the file system. There, search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        this.frame.onload = () => {
          const scope = this.frame.contentWindow;
          scope.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
          const script = scope.document.createElement("script");
          script.src = new URL(url, document.baseURI).href;
          script.onload = () => resolve(scope);
          script.onerror = (event) => this.onerror?.(event);
          scope.document.body.append(script);
        };
      });
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.ready.then((scope) => scope.dispatchEvent(new scope.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
