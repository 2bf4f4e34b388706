class GossipState: pass
def gossip_hook(state, bucket): pass
