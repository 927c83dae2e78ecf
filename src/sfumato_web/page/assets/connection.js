// What a page does when its connection is refused: after a restart of the server it leads to the
// login and back; one tab too many is told so. While the server is away it waits.
(() => {
  let told = null;
  function tell(text) {
    told?.remove();
    told = document.createElement("p");
    told.className = "trouble connection";
    told.setAttribute("role", "alert");
    told.textContent = text;
    (document.getElementById("main") ?? document.body).prepend(told);
  }
  async function look() {
    const page = encodeURIComponent(window.clientId ?? "");
    let found;
    try {
      const reply = await fetch(`/page/connection?client_id=${page}`, { cache: "no-store" });
      found = await reply.json();
    } catch {
      return;
    }
    if (found.state === "signed-out") {
      location.assign(`/page/login?next=${encodeURIComponent(location.pathname)}`);
    } else if (found.state === "unknown") {
      location.reload();
    } else if (found.state === "too-many") {
      tell(found.message);
    }
  }
  const waiting = setInterval(() => {
    if (!window.socket) return;
    clearInterval(waiting);
    window.socket.on("connect_error", look);
    window.socket.on("connect", () => { told?.remove(); told = null; });
    if (!window.socket.connected) setTimeout(() => window.socket.connected || look(), 1000);
  }, 50);
})();
