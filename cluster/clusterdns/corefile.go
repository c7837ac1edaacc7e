package clusterdns

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"

	"subctl/services"
)

// corefile is a parsed Corefile. Files that it imports are not read.
type corefile struct {
	servers []server
	// imports are the patterns of files that it imports outside of server blocks.
	imports []string
}

// server is a server block, or a snippet: then its only key is in parentheses.
type server struct {
	keys []string
	// lines are the lines between the braces.
	lines []line
}

// line is a line of a server block, as words. A brace is a word.
type line struct {
	words []string
	depth int // 0 if a plugin begins here
}

// parse parses a Corefile with the lexer of CoreDNS.
func parse(text string) (corefile, error) {
	p := parser{tokens: lex(text)}
	for !p.done() && p.err == nil {
		p.server()
	}
	return p.file, p.err
}

func lex(text string) (out []caddyfile.Token) {
	d := caddyfile.NewDispenser("Corefile", strings.NewReader(text))
	for d.Next() {
		out = append(out, caddyfile.Token{Line: d.Line(), Text: d.Val()})
	}
	return out
}

type parser struct {
	tokens []caddyfile.Token
	next   int
	file   corefile
	err    error
}

func (p *parser) done() bool { return p.next >= len(p.tokens) }

// isNewLine reports whether the next token is not in the line of the one before it.
func (p *parser) isNewLine() bool {
	if p.next == 0 {
		return true
	}
	last := p.tokens[p.next-1]
	return last.Line+strings.Count(last.Text, "\n") < p.tokens[p.next].Line
}

func (p *parser) fail(format string, args ...any) {
	p.err = fmt.Errorf("line %d: "+format, append([]any{p.tokens[min(p.next, len(p.tokens)-1)].Line}, args...)...)
}

// server reads a server block, or an import outside of them.
func (p *parser) server() {
	if p.tokens[p.next].Text == "import" {
		for p.next++; !p.done() && !p.isNewLine(); p.next++ {
			p.file.imports = append(p.file.imports, p.tokens[p.next].Text)
		}
		return
	}
	var s server
	more := true // whether a key may follow in another line
	for ; !p.done() && p.tokens[p.next].Text != "{"; p.next++ {
		text := p.tokens[p.next].Text
		if p.isNewLine() && !more {
			break
		}
		if text == "}" || strings.HasSuffix(text, "{") {
			p.fail("unexpected %q", text)
			return
		}
		more = strings.HasSuffix(text, ",")
		s.keys = append(s.keys, strings.TrimSuffix(text, ","))
	}
	if p.done() || p.tokens[p.next].Text != "{" {
		p.fail("a server block without braces")
		return
	}
	p.next++
	s.lines = p.body()
	p.file.servers = append(p.file.servers, s)
}

// body reads up to the closing brace of a server block.
func (p *parser) body() (lines []line) {
	depth := 0
	for ; !p.done(); p.next++ {
		text := p.tokens[p.next].Text
		if text == "}" {
			depth--
		}
		if depth < 0 {
			p.next++
			return lines
		}
		if len(lines) == 0 || p.isNewLine() {
			lines = append(lines, line{depth: depth})
		}
		last := &lines[len(lines)-1]
		last.words = append(last.words, text)
		if text == "{" {
			depth++
		}
	}
	p.fail("a closing brace is missing")
	return nil
}

// zone splits a key of a server block into its zone, in lower case and without the last dot ("" is
// the root), and its port with the colon, or empty. ok is false for a key that does not serve DNS
// on its usual port: a snippet, or DNS over TLS and the like.
func zone(key string) (zone, port string, ok bool) {
	if strings.HasPrefix(key, "(") {
		return "", "", false
	}
	if scheme, rest, found := strings.Cut(key, "://"); found {
		if scheme != "dns" {
			return "", "", false
		}
		key = rest
	}
	if name, number, found := strings.Cut(key, ":"); found && !strings.Contains(number, ":") {
		key = name
		port = ":" + number
	}
	return strings.TrimSuffix(strings.ToLower(key), "."), port, true
}

// isDomain reports whether a zone, as people write it, is that of imported Services.
func isDomain(text string) bool {
	z, _, ok := zone(text)
	return ok && z == services.Domain
}

// plugin returns the first line of a plugin; nil if the server block does not have it.
func (s server) plugin(name string) []string {
	i := slices.IndexFunc(s.lines, func(l line) bool { return l.depth == 0 && l.words[0] == name })
	if i < 0 {
		return nil
	}
	return s.lines[i].words
}

// forwards reports whether the server block forwards all queries to address alone.
func (s server) forwards(address string) bool {
	l := s.plugin("forward")
	return len(l) >= 3 && l[2] == address && (len(l) == 3 || l[3] == "{")
}

// domain returns the server block of the domain of imported Services.
func (c corefile) domain() (server, bool) {
	i := slices.IndexFunc(c.servers, func(s server) bool { return slices.ContainsFunc(s.keys, isDomain) })
	if i < 0 {
		return server{}, false
	}
	return c.servers[i], true
}

// multicluster reports whether CoreDNS itself answers names of imported Services, by the option of
// plugin kubernetes, or by the external plugin.
func (c corefile) multicluster() bool {
	return slices.ContainsFunc(c.servers, func(s server) bool {
		return slices.ContainsFunc(s.lines, func(l line) bool {
			return l.words[0] == "multicluster" && slices.ContainsFunc(l.words[1:], isDomain)
		})
	})
}

// reloads reports whether CoreDNS reads the Corefile again when it changes.
func (c corefile) reloads() bool {
	return slices.ContainsFunc(c.servers, func(s server) bool { return s.plugin("reload") != nil })
}

// site returns the site of our block beside the server block that answers the cluster's pods: the
// one of the root, or else the first one.
func (c corefile) site() (site, error) {
	var main server
	port := ""
	found := false
	for _, s := range c.servers {
		for _, key := range s.keys {
			z, p, ok := zone(key)
			if !ok || isDomain(key) || found && z != "" {
				continue
			}
			main = s
			port = p
			found = true
			if z == "" {
				return main.site(port)
			}
		}
	}
	if !found {
		return site{}, errors.New("it has no server block for DNS")
	}
	return main.site(port)
}

func (s server) site(port string) (site, error) {
	bind, err := s.bind()
	out := site{port: port, bind: bind}
	for _, name := range ourPlugins {
		if s.plugin(name) != nil {
			out.plugins = append(out.plugins, name)
		}
	}
	return out, err
}

// bind returns the bind lines of a server block.
func (s server) bind() (out []string, err error) {
	for _, l := range s.lines {
		if l.depth > 0 || l.words[0] != "bind" {
			continue
		}
		if slices.Contains(l.words, "{") {
			return nil, errors.New("its plugin bind has options")
		}
		out = append(out, join(l.words))
	}
	return out, nil
}

// join returns words as text from which the lexer makes the same words.
func join(words []string) string {
	var out []string
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\r\n#\"") {
			w = `"` + strings.ReplaceAll(w, `"`, `\"`) + `"`
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}
