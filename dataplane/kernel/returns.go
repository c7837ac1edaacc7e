//go:build linux

package kernel

import (
	"encoding/binary"
	"fmt"
	"net"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// returns is the owner's nftables table of Returns: everything in it is ours. Each rule has the
// comment that ruleComment returns.
type returns struct{ *Host }

// returnsNeed names the kernel features that the return of replies requires.
const returnsNeed = "nftables with connection tracking, chains of type route, and the expressions fib and numgen"

func (s returns) list() ([]dataplane.Object, error) {
	return s.listTable(s.owner.Returns, &s.ipt.returnsSeen, func() (dataplane.Object, error) { return s.read() })
}

func (s returns) read() (dataplane.Returns, error) {
	o := dataplane.Returns{Table: s.owner.Returns}
	var err error
	o.Seen, err = s.tableFingerprint(family4, o.Table, func(chain string) bool {
		_, hook := dataplane.ReturnsHook(chain)
		return hook != ""
	})
	return o, err
}

// put replaces the whole table in one transaction: no packet passes without the rules of one or the other. The
// marks of connections stay.
func (s returns) put(_, want dataplane.Object) error {
	w := want.(dataplane.Returns)
	tx, err := transaction()
	if err != nil {
		return fmt.Errorf("adding table %s: %w", w.Table, err)
	}
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: w.Table}
	tx.AddTable(t) // so that there is one to remove
	tx.DelTable(t)
	tx.AddTable(t)
	chains, place, rules := map[string]*nftables.Chain{}, map[string]int{}, w.Rules()
	for _, name := range w.Chains() {
		chains[name] = tx.AddChain(returnsChain(t, name))
	}
	for _, r := range rules {
		exprs, err := returnsExprs(r)
		if err != nil {
			return fmt.Errorf("adding table %s: %w", w.Table, err)
		}
		place[r.Chain]++
		tx.AddRule(&nftables.Rule{
			Table: t, Chain: chains[r.Chain], Exprs: exprs,
			UserData: userdata.AppendString(nil, userdata.TypeComment, ruleComment(place[r.Chain], len(rules), len(chains), w.Fingerprint())),
		})
	}
	return s.flushTable(tx, "adding", w.Table, returnsNeed)
}

func (s returns) del(old dataplane.Object) error {
	return s.delTable(family4, old.(dataplane.Returns).Table, returnsNeed)
}

func returnsChain(t *nftables.Table, name string) *nftables.Chain {
	c := &nftables.Chain{Name: name, Table: t}
	if typ, hook := dataplane.ReturnsHook(name); hook != "" {
		priority := nftables.ChainPriority(dataplane.ReturnsPriority)
		c.Type, c.Hooknum, c.Priority = nftables.ChainType(typ), nftHooks[hook], &priority
	}
	return c
}

// returnsExprs returns the expressions of a rule.
func returnsExprs(r dataplane.ReturnsRule) (out []expr.Any, err error) {
	const reg = unix.NFT_REG_1
	add := func(es ...expr.Any) { out = append(out, es...) }
	if r.IIF != "" {
		add(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg}, &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: deviceName(r.IIF)})
	}
	if r.Routed {
		add(&expr.Meta{Key: expr.MetaKeyMARK, Register: reg}, masked(r.Mask, 0), &expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: native(0)})
	}
	if r.OIF != "" {
		add(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg}, &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: deviceName(r.OIF)})
	}
	if r.Marked {
		add(&expr.Ct{Key: expr.CtKeyMARK, Register: reg}, masked(r.Mask, 0), &expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: native(0)})
	}
	if r.Original || r.Reply {
		direction := byte(ctOriginal)
		if r.Reply {
			direction = ctReply
		}
		add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg}, &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{direction}})
	}
	if r.New {
		add(&expr.Ct{Key: expr.CtKeySTATE, Register: reg}, masked(expr.CtStateBitNEW, 0), &expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: native(0)})
	}
	if r.Related {
		add(&expr.Ct{Key: expr.CtKeySTATE, Register: reg}, masked(expr.CtStateBitRELATED, 0), &expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: native(0)})
	}
	if r.MAC != "" {
		mac, err := net.ParseMAC(r.MAC)
		if err != nil {
			return nil, err
		}
		add(&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: reg}, // as nft(8) does: other devices have no such header
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER)},
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseLLHeader, Offset: etherSource, Len: uint32(len(mac))},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: mac})
	}
	if r.Mark != 0 {
		add(&expr.Ct{Key: expr.CtKeyMARK, Register: reg}, masked(r.Mask, 0), &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: native(r.Mark)})
	}
	if r.Far.IsValid() {
		if r.Far.Bits()%8 != 0 {
			return nil, fmt.Errorf("the length of the network %v is no multiple of 8", r.Far)
		}
		n := r.Far.Bits() / 8
		add(&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: dstOffset, Len: uint32(n)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: r.Far.Addr().AsSlice()[:n]})
	}
	if r.Routes != "" {
		add(&expr.Fib{Register: reg, ResultOIFNAME: true, FlagDADDR: true}, &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: deviceName(r.Routes)})
	}
	if r.Of != 0 {
		add(&expr.Numgen{Register: reg, Modulus: r.Of, Type: unix.NFT_NG_RANDOM},
			&expr.Byteorder{SourceRegister: reg, DestRegister: reg, Op: expr.ByteorderHton, Len: 4, Size: 4}, // lt compares bytes
			&expr.Cmp{Op: expr.CmpOpLt, Register: reg, Data: binary.BigEndian.AppendUint32(nil, r.Below)})
	}
	if r.Connection {
		add(&expr.Ct{Key: expr.CtKeyMARK, Register: reg}, masked(^r.Mask, r.Value), &expr.Ct{Key: expr.CtKeyMARK, Register: reg, SourceRegister: true})
	}
	if r.Packet {
		add(&expr.Meta{Key: expr.MetaKeyMARK, Register: reg}, masked(^r.Mask, r.Value), &expr.Meta{Key: expr.MetaKeyMARK, Register: reg, SourceRegister: true})
	}
	if r.Goto != "" {
		add(&expr.Verdict{Kind: expr.VerdictGoto, Chain: r.Goto})
	} else {
		add(&expr.Verdict{Kind: expr.VerdictAccept})
	}
	return out, nil
}

const (
	ctOriginal  = 0 // IP_CT_DIR_ORIGINAL, linux/netfilter/nf_conntrack_tuple_common.h
	ctReply     = 1 // IP_CT_DIR_REPLY
	etherSource = 6 // offset of the sender in the Ethernet header (IEEE 802)
)

// masked clears the bits of a mark outside mask and then inverts those of xor.
func masked(mask, xor uint32) expr.Any {
	return &expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4, Mask: native(mask), Xor: native(xor)}
}

// native returns a number as a mark has it in a register.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
