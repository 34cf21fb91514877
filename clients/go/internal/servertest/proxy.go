package servertest

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
)

// Proxy forwards to a server, and cuts or holds back the reply to a chosen request.
type Proxy struct {
	Port     int
	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	passes  *sync.Cond
	request []byte
	fate    *fate
	split   []byte
	parted  bool
	packets []string
	passed  string
	done    int
	silent  bool
	closed  bool
	conns   map[net.Conn]bool
}

// fate is what happens to a reply: its connection ends after this many bytes, or, if negative, this many bytes before
// the end. If held, it never arrives and its connection stays open.
type fate struct {
	after int
	held  bool
}

// NewProxy listens on a new port.
func NewProxy(t T, server *Server) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Port: listener.Addr().(*net.TCPAddr).Port, server: server.Addr(), listener: listener,
		conns: map[net.Conn]bool{}}
	p.passes = sync.NewCond(&p.mu)
	p.running.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// Addr returns host and port.
func (p *Proxy) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.Port) }

// CutReply lets the next request with these bytes through and ends its connection after this many bytes of the reply;
// if negative, this many are missing.
func (p *Proxy) CutReply(request string, after int) { p.plan(request, fate{after: after}) }

// HoldReply lets the next such request through, and never delivers its reply.
func (p *Proxy) HoldReply(request string) { p.plan(request, fate{held: true}) }

func (p *Proxy) plan(request string, f fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.request, p.fate = []byte(request), &f
}

// SplitRequest delivers the next packet with these bytes up to them, then holds back all requests until Speak.
func (p *Proxy) SplitRequest(request string) { p.set(func() { p.split = []byte(request) }) }

// Packets returns the requests since the last call, as they arrived.
func (p *Proxy) Packets() (packets []string) {
	p.set(func() { packets, p.packets = p.packets, nil })
	return packets
}

// Passed returns the latest data that was passed back to a client.
func (p *Proxy) Passed() (passed string) {
	p.set(func() { passed = p.passed })
	return passed
}

// Done returns how many replies were cut or held back.
func (p *Proxy) Done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Silence silences the network: from now on no data passes, no connection ends, and new ones are accepted.
func (p *Proxy) Silence() { p.set(func() { p.silent = true }) }

// Speak ends the silence and delivers the held-back data, like a network that retransmits its packets.
func (p *Proxy) Speak() { p.set(func() { p.silent, p.parted = false, false }) }

// Disconnect ends every connection.
func (p *Proxy) Disconnect() {
	p.set(func() {
		for conn := range p.conns {
			_ = conn.Close()
		}
	})
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.passes.Broadcast()
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.set(func() { p.closed, p.silent, p.parted = true, false, false })
	p.Disconnect()
	p.running.Wait()
}

func (p *Proxy) accept() {
	defer p.running.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close() // The server may be gone.
			continue
		}
		p.set(func() { p.conns[client], p.conns[server] = true, true })
		mine := make(chan *fate, 1)
		p.running.Add(2)
		end := func() {
			_ = client.Close()
			_ = server.Close()
			p.running.Done()
		}
		go func() { defer end(); p.requests(client, server, mine) }()
		go func() { defer end(); p.replies(server, client, mine) }()
	}
}

// pass returns false when the proxy is closed.
func (p *Proxy) pass(isRequest bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.silent || isRequest && p.parted {
		p.passes.Wait()
	}
	return !p.closed
}

func (p *Proxy) requests(client io.Reader, to io.Writer, mine chan *fate) {
	buffer := make([]byte, 64*1024)
	for {
		length, err := client.Read(buffer)
		if err != nil || !p.pass(true) {
			return
		}
		at := -1
		p.set(func() {
			p.packets = append(p.packets, string(buffer[:length]))
			if p.fate != nil && bytes.Contains(buffer[:length], p.request) {
				mine <- p.fate
				p.fate = nil
			}
			if p.split != nil {
				at = bytes.Index(buffer[:length], p.split)
			}
			if at >= 0 {
				p.split, p.parted = nil, true
			}
		})
		from := 0
		if at >= 0 {
			if _, err := to.Write(buffer[:at]); err != nil || !p.pass(true) {
				return
			}
			from = at
		}
		if _, err := to.Write(buffer[from:length]); err != nil {
			return
		}
	}
}

func (p *Proxy) replies(from io.Reader, to io.Writer, mine chan *fate) {
	buffer := make([]byte, 64*1024)
	isHeld := false
	for {
		length, err := from.Read(buffer)
		if err != nil || !p.pass(false) {
			return
		}
		select {
		case f := <-mine:
			p.set(func() { p.done++ })
			if !f.held {
				after := f.after
				if after < 0 {
					after = max(0, length+after)
				}
				_, _ = to.Write(buffer[:min(after, length)])
				return
			}
			isHeld = true
		default:
		}
		if isHeld {
			continue
		}
		if _, err := to.Write(buffer[:length]); err != nil {
			return
		}
		p.set(func() { p.passed = string(buffer[:length]) })
	}
}
