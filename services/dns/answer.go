package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"subctl/services"
)

const (
	zone = services.Domain + "."
	// nameServer is the name of the server in SOA and NS records. It has no address, as the server
	// does not know the address at which clients reach it.
	nameServer = "ns.dns." + zone
	hostmaster = "hostmaster." + zone
	version    = "dns-version." + zone

	// ttl is how long caches keep answers, in seconds: an endpoint that fails is gone as soon.
	ttl = 5
	// versionTTL is the specification's.
	versionTTL = 28800

	// maxUDP is the most that passes all networks unfragmented (DNS flag day 2020).
	maxUDP = 1232

	headerOctets  = 12
	addressOctets = 16 // an A record
)

// Answer returns the response to a query that arrived over UDP or TCP; nil if there is to be none.
// The response may have fewer records than there are, which over UDP is marked as truncated:
// clients then ask over TCP.
func (i *Index) Answer(query *dns.Msg, tcp bool) *dns.Msg {
	if query.Response {
		return nil
	}
	r := new(dns.Msg)
	r.SetReply(query)
	size := dns.MinMsgSize
	opt, count := edns(query)
	if opt != nil {
		size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDP)
		r.SetEdns0(maxUDP, opt.Do())
	}
	if tcp {
		size = dns.MaxMsgSize
	}
	if r.Rcode = i.refusal(query, opt, count); r.Rcode != dns.RcodeSuccess {
		return r
	}
	a := answer{index: i, msg: r, question: query.Question[0], most: (size-headerOctets)/addressOctets + 1}
	a.name = strings.ToLower(a.question.Name)
	a.fill()
	fit(r, size)
	return r
}

// edns returns an OPT record of the query, and the number of them.
func edns(query *dns.Msg) (opt *dns.OPT, count int) {
	for _, rr := range query.Extra {
		if o, ok := rr.(*dns.OPT); ok {
			opt = o
			count++
		}
	}
	return opt, count
}

// refusal returns the code with which a query is refused; RcodeSuccess if it is not.
func (i *Index) refusal(query *dns.Msg, opt *dns.OPT, opts int) int {
	if opts > 1 {
		return dns.RcodeFormatError // RFC 6891, section 6.1.1
	}
	if opt != nil && opt.Version() != 0 {
		return dns.RcodeBadVers
	}
	if query.Opcode != dns.OpcodeQuery {
		return dns.RcodeNotImplemented
	}
	if len(query.Question) != 1 {
		return dns.RcodeFormatError // RFC 9619
	}
	q := query.Question[0]
	switch {
	case q.Qclass != dns.ClassINET || !dns.IsSubDomain(zone, q.Name):
		return dns.RcodeRefused
	case q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR:
		return dns.RcodeRefused
	case !i.Ready():
		return dns.RcodeServerFailure // a name that is missing may exist
	}
	return dns.RcodeSuccess
}

// fit makes a response fit into a number of octets. Additional records are left out first, and that
// is no truncation (RFC 2181, section 9).
func fit(r *dns.Msg, size int) {
	if opt := r.IsEdns0(); len(r.Extra) > 1 || len(r.Extra) == 1 && opt == nil {
		if r.Compress = true; r.Len() > size {
			r.Extra = nil
			if opt != nil {
				r.Extra = []dns.RR{opt}
			}
		}
	}
	r.Truncate(size)
}

// answer is a response that is being made.
type answer struct {
	index    *Index
	msg      *dns.Msg
	question dns.Question
	name     string // of the question, in lower case
	most     int    // addresses, of which the last one does not fit
}

// fill fills the response in.
func (a *answer) fill() {
	a.msg.Authoritative = true
	switch exists := a.records(); {
	case !exists:
		a.msg.Rcode = dns.RcodeNameError
		a.msg.Ns = []dns.RR{soa()}
	case a.question.Qtype == dns.TypeANY: // RFC 8482, section 4.2
		a.msg.Answer = []dns.RR{&dns.HINFO{Hdr: a.header(a.question.Name, dns.TypeHINFO), Cpu: "RFC8482"}}
	case len(a.msg.Answer) == 0:
		a.msg.Ns = []dns.RR{soa()}
	}
}

// records adds the records that answer the question, and reports whether the name exists. A name
// exists if there are names below it, as in all of DNS (RFC 8020).
func (a *answer) records() bool {
	if strings.IndexByte(a.name, '\\') >= 0 {
		return false // no name has an octet that is escaped
	}
	switch a.name {
	case zone:
		a.apex()
		return true
	case version:
		if a.question.Qtype == dns.TypeTXT {
			h := a.header(a.question.Name, dns.TypeTXT)
			h.Ttl = versionTTL
			a.add(&dns.TXT{Hdr: h, Txt: []string{"1.0.0"}})
		}
		return true
	case nameServer, "dns." + zone, "svc." + zone:
		return true
	}
	below, found := strings.CutSuffix(a.name, ".svc."+zone)
	if !found {
		return false
	}
	at := strings.LastIndexByte(below, '.')
	if at < 0 {
		return a.index.namespace(below)
	}
	at = strings.LastIndexByte(below[:at], '.') + 1
	s := a.index.service(below[at:])
	if s == nil {
		return false
	}
	if at == 0 {
		return a.service(s)
	}
	return a.below(s, below[:at-1])
}

// apex answers for the zone itself.
func (a *answer) apex() {
	switch a.question.Qtype {
	case dns.TypeSOA:
		a.add(soa())
	case dns.TypeNS:
		a.add(&dns.NS{Hdr: a.header(a.question.Name, dns.TypeNS), Ns: nameServer})
	}
}

// service answers for the name of a Service. A headless Service without ready endpoints has no
// name.
func (a *answer) service(s *service) bool {
	if s.spec.headless && len(s.members) == 0 {
		return false
	}
	a.addresses(s.addresses)
	a.ports(s, func(port) bool { return true })
	return true
}

// below answers for a name below a Service: of a port, a cluster or an endpoint.
func (a *answer) below(s *service, labels string) bool {
	first, second, two := strings.Cut(labels, ".")
	switch {
	case strings.Contains(second, ".") || first == "" || two && second == "":
		return false
	case two && second[0] == '_':
		if first[0] != '_' || first == "_" {
			return false
		}
		return a.ports(s, func(p port) bool { return p.name == first[1:] && p.protocol == second[1:] })
	case two:
		return a.endpoint(s, first, second)
	case first[0] == '_':
		return s.has(func(p port) bool { return p.name != "" && p.protocol == first[1:] })
	}
	return a.cluster(s, first)
}

// cluster answers for the name of a Service in one cluster. The specification reserves these names;
// but below those of a headless Service, endpoints have names.
func (a *answer) cluster(s *service, cluster string) bool {
	if a.index.clusterNames {
		found := s.ofCluster(cluster)
		a.addresses(found)
		return len(found) > 0
	}
	for _, m := range s.members {
		if m.of.cluster == cluster {
			return true
		}
	}
	return false
}

// endpoint answers for the name of an endpoint of a headless Service.
func (a *answer) endpoint(s *service, host, cluster string) bool {
	if !s.spec.headless {
		return false
	}
	found := addressesOf(s.endpoints(func(m member) bool {
		return m.ready && m.of.cluster == cluster && m.isNamed(host)
	}))
	a.addresses(found)
	return len(found) > 0
}

// addresses adds addresses of the family that is asked for, beginning anywhere.
func (a *answer) addresses(all []netip.Addr) {
	if a.question.Qtype != dns.TypeA && a.question.Qtype != dns.TypeAAAA || len(all) == 0 {
		return
	}
	start := 0
	if len(all) > 1 {
		start = a.index.choose(len(all))
	}
	for i := range all {
		address := all[(start+i)%len(all)]
		if address.Is4() == (a.question.Qtype == dns.TypeA) {
			a.add(a.address(a.question.Name, address))
		}
		if len(a.msg.Answer) == a.most {
			return
		}
	}
}

func (a *answer) add(rr dns.RR) { a.msg.Answer = append(a.msg.Answer, rr) }

// address returns an A or AAAA record.
func (a *answer) address(name string, address netip.Addr) dns.RR {
	if address.Is4() {
		return &dns.A{Hdr: a.header(name, dns.TypeA), A: address.AsSlice()}
	}
	return &dns.AAAA{Hdr: a.header(name, dns.TypeAAAA), AAAA: address.AsSlice()}
}

func (a *answer) header(name string, of uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: of, Class: dns.ClassINET, Ttl: ttl}
}

// soa returns the SOA record of the zone, whose last number limits how long caches keep negative
// answers. Its serial is constant, as nobody transfers the zone, and replicas have no common one.
func soa() dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  nameServer, Mbox: hostmaster, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}
