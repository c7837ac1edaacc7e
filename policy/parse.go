package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
)

// ParseSelector parses a selector: requirements separated by commas, all of which a
// cluster must meet.
//
//	env=production   env==production   env: production
//	env!=production  env=!production   env: !production
//	tier in (a,b)    tier notin (a,b)  tier              !tier
//
// This is kubectl's notation, extended by the notation of the CablePolicies proposal. An
// empty text selects every cluster. An error contains the position of the mistake, in
// characters, counted from 1.
func ParseSelector(text string) (v1alpha1.ClusterSelector, error) {
	p := &parser{text: text}
	p.next()
	s := v1alpha1.ClusterSelector{}
	for p.token != "" || len(p.text) > p.at {
		if err := p.requirement(&s); err != nil {
			return v1alpha1.ClusterSelector{}, err
		}
		if p.token == "" {
			return s, nil
		}
		if p.token != "," {
			return v1alpha1.ClusterSelector{}, p.expected(`","`)
		}
		if p.next(); p.token == "" {
			return v1alpha1.ClusterSelector{}, p.expected("another requirement")
		}
	}
	return s, nil
}

// parser reads a selector token by token.
type parser struct {
	text  string
	token string // the current one; empty at the end
	start int    // its first byte in text
	at    int    // the byte after it
}

// marks are the tokens that are not words.
var marks = []string{"==", "!=", "=", "!", "(", ")", ",", ":", "<", ">"}

const space = " \t\r\n"

// next advances to the next token.
func (p *parser) next() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], space))
	p.start = p.at
	rest := p.text[p.at:]
	for _, m := range marks {
		if strings.HasPrefix(rest, m) {
			p.take(len(m))
			return
		}
	}
	if end := strings.IndexAny(rest, "=!(),:<>"+space); end >= 0 {
		p.take(end)
		return
	}
	p.take(len(rest))
}

func (p *parser) take(n int) {
	p.token = p.text[p.at : p.at+n]
	p.at += n
}

// word reports whether the current token is a word.
func (p *parser) word() bool { return p.token != "" && !slices.Contains(marks, p.token) }

// requirement parses a requirement, and adds it to s.
func (p *parser) requirement(s *v1alpha1.ClusterSelector) error {
	if p.token == "!" {
		p.next()
		key, err := p.key()
		s.MatchExpressions = append(s.MatchExpressions,
			v1alpha1.ClusterRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
		return err
	}
	key, err := p.key()
	if err != nil {
		return err
	}
	e := v1alpha1.ClusterRequirement{Key: key}
	switch p.token {
	case "", ",":
		e.Operator = metav1.LabelSelectorOpExists
	case "=", "==", ":":
		return p.equality(s, e)
	case "!=":
		e.Operator = metav1.LabelSelectorOpNotIn
		p.next()
		value, err := p.value()
		if err != nil {
			return err
		}
		e.Values = []string{value}
	case "in", "notin":
		e.Operator = metav1.LabelSelectorOpIn
		if p.token == "notin" {
			e.Operator = metav1.LabelSelectorOpNotIn
		}
		if e.Values, err = p.values(); err != nil {
			return err
		}
	case "<", ">":
		return p.fail("label values are text and have no order: use in or notin")
	default:
		return p.expected(`"=", "!=", "in", "notin" or ","`)
	}
	s.MatchExpressions = append(s.MatchExpressions, e)
	return nil
}

// equality parses the rest of a requirement after the key: "=", an optional "!", and a value.
func (p *parser) equality(s *v1alpha1.ClusterSelector, e v1alpha1.ClusterRequirement) error {
	p.next()
	e.Operator = metav1.LabelSelectorOpIn
	if p.token == "!" {
		p.next()
		if !p.word() {
			return p.expected("a value")
		}
		e.Operator = metav1.LabelSelectorOpNotIn
	}
	value, err := p.value()
	if err != nil {
		return err
	}
	_, taken := s.MatchLabels[e.Key]
	if e.Operator == metav1.LabelSelectorOpNotIn || taken {
		e.Values = []string{value}
		s.MatchExpressions = append(s.MatchExpressions, e)
		return nil
	}
	if s.MatchLabels == nil {
		s.MatchLabels = map[string]string{}
	}
	s.MatchLabels[e.Key] = value
	return nil
}

// key parses the key of a label.
func (p *parser) key() (string, error) {
	if !p.word() {
		return "", p.expected("the key of a label")
	}
	return p.label(requirement{key: p.token})
}

// value parses the value of a label, which may be empty.
func (p *parser) value() (string, error) {
	if p.token == "" || p.token == "," || p.token == ")" {
		return "", nil
	}
	if !p.word() {
		return "", p.expected("a value")
	}
	return p.label(requirement{key: "any", values: []string{p.token}})
}

// label returns the current token if q, which contains it, is valid, and advances.
func (p *parser) label(q requirement) (string, error) {
	if flaw := q.flaw(); flaw != "" {
		return "", p.fail(flaw)
	}
	token := p.token
	p.next()
	return token, nil
}

// values parses "(a,b)" after in or notin.
func (p *parser) values() ([]string, error) {
	if p.next(); p.token != "(" {
		return nil, p.expected(`"("`)
	}
	var out []string
	for {
		p.next()
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		out = append(out, value)
		switch p.token {
		case ")":
			p.next()
			return out, nil
		case ",":
		default:
			return nil, p.expected(`"," or ")"`)
		}
	}
}

func (p *parser) expected(what string) error {
	if p.token == "" {
		return p.fail("expected " + what + " at the end")
	}
	return p.fail(fmt.Sprintf("expected %s, found %s", what, quote(p.token)))
}

// fail returns an error at the current token.
func (p *parser) fail(what string) error {
	return fmt.Errorf("character %d of %s: %s", utf8.RuneCountInString(p.text[:p.start])+1, quote(p.text), what)
}
