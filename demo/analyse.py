import matplotlib.pyplot as plt
import pandas as pd

df = pd.read_csv("us_macro.csv")
df["date"] = pd.PeriodIndex.from_fields(year=df["year"], quarter=df["quarter"], freq="Q").to_timestamp()
df["growth"] = df["realgdp"].pct_change(4) * 100
df["decade"] = (df["year"] // 10 * 10).astype(str) + "s"

print(f"{len(df)} quarters, {df['year'].min()} to {df['year'].max()}; missing values: {df.drop(columns='growth').isna().sum().sum()}")

worst = df.loc[df["unemp"].idxmax()]
print(f"Unemployment peaked at {worst['unemp']:.1f}% in {worst['year']}Q{worst['quarter']}.")

by_year = df.groupby("year")["infl"].mean()
print(f"The year with the highest inflation was {by_year.idxmax()} ({by_year.max():.1f}%).")

recession = df[df["growth"] < 0]
print(f"Output shrank year on year in {len(recession)} quarters; unemployment then averaged {recession['unemp'].mean():.1f}%,")
print(f"otherwise {df.loc[df['growth'] >= 0, 'unemp'].mean():.1f}%.")

fig, ax = plt.subplots(figsize=(10, 5))
ax.plot(df["date"], df["infl"].rolling(4).mean(), label="通货膨胀率 Inflation (4-quarter mean)", color="tab:red")
ax.plot(df["date"], df["unemp"], label="失业率 Unemployment", color="tab:blue")
ax.fill_between(
    df["date"], 0, 1, where=df["growth"] < 0, transform=ax.get_xaxis_transform(), color="grey", alpha=0.25,
    label="经济衰退 Shrinking economy",
)
ax.axhline(0, color="black", linewidth=0.8)
ax.set_title("美国的通货膨胀与失业 Inflation and unemployment in the United States, 1959–2009")
ax.set_xlabel("年份 Year")
ax.set_ylabel("百分比 Percent")
ax.legend(loc="upper right")
fig.tight_layout()
plt.show()

summary = (
    df.groupby("decade")
    .agg(
        quarters=("quarter", "size"),
        growth=("growth", "mean"),
        inflation=("infl", "mean"),
        unemployment=("unemp", "mean"),
        bill_rate=("tbilrate", "mean"),
    )
    .round(2)
)
summary
